"""Captured steps that are wrong on purpose, each in one way: what the proof of a captured step has to catch.

``graph_type`` of a captured step takes one of these instead of the right one; everything else stays as it is.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from brim.data import Batch
from brim.data.batches.batch import map_leaves
from brim.engine.captured.graph import StepGraph
from brim.engine.captured.inputs import own_copy, read_window


class RepeatedMask(StepGraph):
    """Draws the same random numbers in every replay, and leaves the generator where a right one would."""

    _first: Any = None

    def _run(self) -> None:
        device = self.eager.precision.device
        if device.type != "cuda":
            self._first = torch.get_rng_state() if self._first is None else self._first
            torch.set_rng_state(self._first)
            super()._run()
            return
        generator = torch.cuda.default_generators[device.index or 0]
        now = generator.get_offset()
        self._first = now if self._first is None else self._first
        generator.set_offset(self._first)
        super()._run()
        generator.set_offset(now + generator.get_offset() - self._first)


class FrozenRate(StepGraph):
    """Has the learning rate of the moment of capturing baked in."""

    def make_step(self) -> Tensor:
        moves, self.rates.move = self.rates.move, False
        try:
            return super().make_step()
        finally:
            self.rates.move = moves


class StaleInput(StepGraph):
    """Reads one tensor of the batch that it was captured with, for ever: the last, which may be a mask."""

    place = -1

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._stale = read_window(own_copy(self.inputs.window()))[0][self.place]

    def make_step(self) -> Tensor:
        fresh = self.inputs
        self.inputs = _Stale(fresh, self.place, self._stale)  # type: ignore[assignment]
        try:
            return super().make_step()
        finally:
            self.inputs = fresh


class _Stale:
    def __init__(self, inputs: Any, place: int, stale: Tensor) -> None:
        self._inputs, self._place, self._stale = inputs, place, stale
        self.cursor = inputs.cursor

    def window(self) -> Sequence[Batch]:
        window = self._inputs.window()
        tensors = read_window(window)[0]
        tensors[self._place] = self._stale
        following = iter(tensors)
        return [map_leaves(lambda leaf: next(following) if isinstance(leaf, Tensor) else leaf, one) for one in window]


class UnfilledInput(StepGraph):
    """One tensor of the batch is never copied in."""

    place = -1

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        fill = self.inputs.fill

        def fill_most(tensors: list[Tensor]) -> None:
            kept = read_window(self.inputs.window())[0][self.place].clone()
            fill([*tensors[: self.place], kept, *tensors[len(tensors) + self.place + 1 :]])

        self.inputs.fill = fill_most  # type: ignore[method-assign]


class MissingGradient(StepGraph):
    """The gradient of one parameter is that of another batch; the smallest one's, which shows the least."""

    def make_step(self) -> Tensor:
        with self.clip.on_device():
            loss = self.eager.gradients(self.inputs.window())
        victim = min((p for p in self.eager.parameters if p.grad is not None), key=lambda p: p.numel())
        if not hasattr(self, "_stale"):
            assert victim.grad is not None
            self._stale = victim.grad.clone()
        victim.grad = self._stale
        with self.rates.on_device():
            self._loss = loss = self.eager.apply(loss).loss
        self._keep(loss)
        return loss


class FrozenCount(StepGraph):
    """Adam's count of steps stands still."""

    def make_step(self) -> Tensor:
        loss = super().make_step()
        for state in self.eager.optimizer.state.values():
            if "step" in state:
                state["step"].sub_(1)
        return loss


class DroppedClip(StepGraph):
    """Gradients are not clipped."""

    def make_step(self) -> Tensor:
        norm, self.eager.clip_norm = self.eager.clip_norm, None
        try:
            return super().make_step()
        finally:
            self.eager.clip_norm = norm


class FrozenDecay(StepGraph):
    """Steps as if there were no weight decay."""

    def make_step(self) -> Tensor:
        groups = self.eager.optimizer.param_groups
        decays = [group["weight_decay"] for group in groups]
        for group in groups:
            group["weight_decay"] = 0.0
        try:
            return super().make_step()
        finally:
            for group, decay in zip(groups, decays, strict=True):
                group["weight_decay"] = decay


MUTATIONS: dict[str, type[StepGraph]] = {
    "a repeated dropout mask": RepeatedMask,
    "a frozen learning rate": FrozenRate,
    "a stale mask": StaleInput,
    "a mask that is not copied in": UnfilledInput,
    "a missing gradient": MissingGradient,
    "a frozen count of Adam's": FrozenCount,
    "a dropped clip": DroppedClip,
    "a dropped weight decay": FrozenDecay,
}
