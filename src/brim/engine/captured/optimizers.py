"""Optimizers inside a graph: their numbers must live on the device."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.optim import ASGD, SGD, Adadelta, Adam, Adamax, AdamW, NAdam, Optimizer, RMSprop, Rprop

from brim.engine.captured.report import Refusal
from brim.engine.step.eager_step import EagerStep
from brim.replaced import replaced

FUSED = (Adam, AdamW, SGD)  # one kernel, which reads the learning rate from the device
# Their learning rate is baked in. Not RAdam: on the device its corrections are computed in single precision, where
# they cancel, and the training differs by more than rounding.
CAPTURABLE = (RMSprop, NAdam, Adamax, Adadelta, ASGD, Rprop)
USUAL_RATE = 1e-3
MOVES_IN_A_ROW = 2  # of settings between eager steps: one change may be a user's own, for good
FREE = ("params", "lr")  # of a group: the learning rate may change, the rest must not


def check_optimizer(optimizer: Optimizer) -> None:
    """Refuse what cannot be replayed."""
    name = type(optimizer).__name__
    if type(optimizer) not in FUSED + CAPTURABLE:
        known = ", ".join(kind.__name__ for kind in FUSED + CAPTURABLE)
        raise Refusal(f"the optimizer {name} keeps numbers on the host; {known} can be captured")
    if optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks:
        raise Refusal(f"{name} has hooks around its step that a graph would not call")
    for group in optimizer.param_groups:
        if group.get("differentiable"):
            raise Refusal(f"{name} is differentiable")
        for parameter in group["params"]:
            if parameter.requires_grad and not (parameter.is_cuda and parameter.is_floating_point()):
                raise Refusal(f"{name} steps a parameter that is not a real number on the GPU")


def check_rates(optimizer: Optimizer) -> None:
    """Refuse a learning rate that moves where it would be baked in."""
    if not isinstance(optimizer, FUSED):
        kinds = ", ".join(kind.__name__ for kind in FUSED)
        raise Refusal(f"the learning rate moves, and a graph follows it only for {kinds}")


class DeviceOptimizer:
    """An optimizer whose state is on the device: made so, and put back where capturing comes to nothing."""

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer
        self._settings = [
            {name: value for name, value in group.items() if name in ("fused", "foreach")}
            for group in optimizer.param_groups
        ]
        self._scales = getattr(optimizer, "_step_supports_amp_scaling", None)
        self._on_host: list[tuple[dict[str, Any], str, Tensor]] = []  # counts of steps, and products of betas
        for parameter, state in optimizer.state.items():
            for name, value in state.items():
                if isinstance(value, Tensor) and not value.is_cuda and parameter.is_cuda:
                    self._on_host.append((state, name, value))
                    state[name] = value.to(parameter.device, torch.float32)
        if isinstance(optimizer, FUSED):
            for group in optimizer.param_groups:
                group["fused"], group["foreach"] = True, False
            optimizer._step_supports_amp_scaling = True

    @contextmanager
    def as_before(self) -> Iterator[None]:
        """The optimizer as the user has it, on the numbers of now; what it counts meanwhile goes on on the device."""
        on_device = [state[name] for state, name, _ in self._on_host]
        now = self._switch(self._settings, self._scales)
        for state, name, value in self._on_host:
            state[name] = value.copy_(state[name])
        try:
            yield
        finally:
            for (state, name, value), tensor in zip(self._on_host, on_device, strict=True):
                state[name] = tensor.copy_(value)
            self._switch(*now)

    def _switch(self, settings: list[dict[str, Any]], scales: bool | None) -> tuple[list[dict[str, Any]], bool | None]:
        """Set which kernels are used; what was set before is returned."""
        before, had = _set_groups(self.optimizer, settings), getattr(self.optimizer, "_step_supports_amp_scaling", None)
        if isinstance(self.optimizer, FUSED):
            if scales is None:
                self.optimizer.__dict__.pop("_step_supports_amp_scaling", None)
            else:
                self.optimizer._step_supports_amp_scaling = scales
        return before, had

    def undo(self) -> None:
        for state, name, value in self._on_host:
            state[name] = value.copy_(state[name])
        self._switch(self._settings, self._scales)


class LearningRates:
    """The learning rates that a graph reads. Users and schedules go on with the numbers in the groups.

    While they stand still they are baked in, which is the same to the bit as without a graph. Once they move they are
    tensors on the device, filled before each replay: single precision, which rounds them.
    """

    def __init__(self, optimizer: Optimizer, device: torch.device, move: bool) -> None:
        self.optimizer = optimizer
        self.move = move and isinstance(optimizer, FUSED)
        self.device = device
        self.values = [self._of(group["lr"]) for group in optimizer.param_groups]
        self.tensors = [
            value if isinstance(value, Tensor) else torch.tensor(value, device=device) for value in self.values
        ]

    def _of(self, lr: float | Tensor) -> float | Tensor:
        """A tensor on the device is read where it is; one on the host is a number that kernels are launched with."""
        return lr if isinstance(lr, Tensor) and lr.device == self.device else float(lr)

    def follow(self) -> bool:
        """Take the learning rates of now; False where they moved and are baked in."""
        for number, group in enumerate(self.optimizer.param_groups):
            now, known = self._of(group["lr"]), self.values[number]
            if now is known or (type(now) is type(known) is float and now == known):
                continue
            if not self.move or isinstance(now, Tensor):
                return False
            self.values[number] = now
            self.tensors[number].fill_(now)
        return True

    def probe(self, factor: float) -> None:
        """Move the learning rates that move, to see whether a graph follows; from a usual one where they are zero.

        A schedule that warms up begins with zero, and at that nothing could be seen.
        """
        for number, group in enumerate(self.optimizer.param_groups):
            if self._follows(number):
                usual = self.values[number] or float(group.get("initial_lr") or 0.0) or USUAL_RATE
                self.tensors[number].fill_(usual * factor)

    def refill(self) -> None:
        for number, value in enumerate(self.values):
            if self._follows(number):
                self.tensors[number].fill_(value)

    def _follows(self, number: int) -> bool:
        """Whether the graph reads a tensor that is filled for it; one of the user's own is never written to."""
        return self.move and not isinstance(self.values[number], Tensor)

    def on_host(self) -> AbstractContextManager[None]:
        """The groups with the rates that the device holds now, as numbers: what a graph must do the same as."""
        return _group_settings(
            self.optimizer,
            [{"lr": float(rate)} if self._follows(number) else {} for number, rate in enumerate(self.tensors)],
        )

    def on_device(self) -> AbstractContextManager[None]:
        """The groups as a graph is to see them."""
        capturable = [{"capturable": True} if "capturable" in group else {} for group in self.optimizer.param_groups]
        rates = [{"lr": rate} if self.move else {} for rate in self.tensors]
        return _group_settings(self.optimizer, [{**one, **other} for one, other in zip(rates, capturable, strict=True)])


@contextmanager
def _group_settings(optimizer: Optimizer, settings: list[dict[str, Any]]) -> Iterator[None]:
    """The groups with these settings for a while."""
    before = _set_groups(optimizer, settings)
    try:
        yield
    finally:
        _set_groups(optimizer, before)


def _set_groups(optimizer: Optimizer, settings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Give the first groups these settings; returns those that they had."""
    pairs = list(zip(optimizer.param_groups, settings, strict=False))  # a group may have been added since
    before = [{name: group[name] for name in known} for group, known in pairs]
    for group, known in pairs:
        group.update(known)
    return before


class ClipLimit:
    """The norm that gradients are clipped to, where a graph reads it. A limit that is baked in could not be tried."""

    def __init__(self, eager: EagerStep) -> None:
        self.eager = eager
        self.tensor: Tensor | None = None
        self.refill()

    def refill(self) -> None:
        """Set it to the limit that the user asked for."""
        if self.eager.clip_norm is not None:
            self.set(self.eager.clip_norm)

    def set(self, norm: float) -> None:
        if self.tensor is None:
            self.tensor = torch.tensor(norm, dtype=torch.float32, device=self.eager.precision.device)
        self.tensor.fill_(norm)

    def on_device(self) -> AbstractContextManager[None]:
        """The step as a graph is to see it."""
        return replaced((self.eager, "clip_limit", self.tensor))

    def on_host(self, norm: float) -> AbstractContextManager[None]:
        """The step with this limit, as torch clips."""
        return replaced((self.eager, "clip_norm", norm))


def settings_of(optimizer: Optimizer) -> list[tuple[Any, ...]]:
    """The settings of the groups that are baked into a graph."""
    return [
        (len(group["params"]), *[value for name, value in group.items() if name not in FREE])
        for group in optimizer.param_groups
    ]


class SettingsWatch:
    """Settings of the optimizer before each eager step: what moves from step to step, no graph could follow."""

    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer = optimizer
        self._settings = settings_of(optimizer)
        self._moves = 0
        self._step = 0

    def look(self, step: int) -> str | None:
        """Which setting has moved before each of the last steps, as a reason to stay eager; None where none has.

        ``step``: the number of the step, eager and replayed ones counted.
        """
        before, self._settings = self._settings, settings_of(self._optimizer)
        follows, self._step = step == self._step + 1, step
        self._moves = 0 if before == self._settings else self._moves + 1 if follows else 1
        name = moved_setting(self._optimizer, before, self._settings)
        if self._moves < MOVES_IN_A_ROW or name is None:
            return None
        return (
            f"a schedule moves {name} of {type(self._optimizer).__name__} with every step, a number of the host that a "
            "graph would repeat; OneCycleLR and CyclicLR leave it alone with cycle_momentum=False"
        )


def moved_setting(optimizer: Optimizer, before: list[tuple[Any, ...]], now: list[tuple[Any, ...]]) -> str | None:
    """The name of the first setting that is another one now; None where groups came or went."""
    if len(before) != len(now):
        return None
    for group, one, other in zip(optimizer.param_groups, before, now, strict=True):
        names = [name for name in group if name not in FREE]
        if len(one) != len(other) or one[0] != other[0]:
            return None
        for name, was, has in zip(names, one[1:], other[1:], strict=True):
            if was != has:
                return name
    return None
