"""An exponential moving average of the weights (EMA), by torch's ``AveragedModel``."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from brim.engine.state.fingerprint import as_bytes
from brim.errors import ConfigError


class WeightAverage:
    """The average of a model's weights over its optimizer steps: ``average = decay * average + (1 - decay) * weights``.

    It begins with the weights after the first step, as torch's does. Buffers are not averaged: statistics of norms are
    the model's.

    >>> model = nn.Linear(1, 1, bias=False)
    >>> average = WeightAverage(model, 0.5)
    >>> for value in (1.0, 2.0):
    ...     _ = nn.init.constant_(model.weight, value)
    ...     average.update(model)
    >>> average.module.weight.item()
    1.5
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self._average = get_ema_multi_avg_fn(decay)  # type: ignore[no-untyped-call]
        try:
            self._averaged = AveragedModel(model, multi_avg_fn=self._average)
        except Exception as error:  # whatever a model does when it is copied
            why = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
            raise ConfigError(f"ema={decay} needs a copy of the model, which cannot be made: {why}") from error
        self._averaged.requires_grad_(False)
        self._is_in_place = False

    @property
    def module(self) -> nn.Module:
        """The model with the averaged weights."""
        module: nn.Module = self._averaged.module
        return module

    @property
    def has_begun(self) -> bool:
        return int(self._averaged.n_averaged) > 0

    def update(self, model: nn.Module) -> None:
        """After an optimizer step.

        What ``update_parameters`` does, but for its copy of the count to the device: the host would wait for it.
        """
        if not self.has_begun:
            self._averaged.update_parameters(model)
            return
        own = [parameter.detach() for parameter in self.module.parameters()]
        self._average(own, [parameter.detach() for parameter in model.parameters()], None)
        with torch.no_grad():
            for buffer, theirs in zip(self.module.buffers(), model.buffers(), strict=True):
                buffer.copy_(theirs)
        self._averaged.n_averaged += 1

    @contextmanager
    def in_place(self, model: nn.Module) -> Iterator[None]:
        """The model has the averaged weights meanwhile, in its own memory: captured graphs read them there."""
        if not self.has_begun or self._is_in_place:  # by an evaluation within an evaluation
            yield
            return
        self._swap(model)
        self._is_in_place = True
        try:
            yield
        finally:
            self._swap(model)
            self._is_in_place = False

    @torch.no_grad()
    def _swap(self, model: nn.Module) -> None:
        for own, averaged in zip(model.parameters(), self.module.parameters(), strict=True):
            kept = own.detach().clone()
            own.copy_(averaged)
            averaged.copy_(kept)

    @torch.no_grad()
    def give(self, model: nn.Module) -> None:
        """Let the model have the averaged weights, for good."""
        if self.has_begun:
            for own, averaged in zip(model.parameters(), self.module.parameters(), strict=True):
                own.copy_(averaged)

    def state(self, model: nn.Module) -> dict[str, Any]:
        """For a checkpoint, which has the model's weights as well: the average of a frozen one is that itself."""
        averaged = {name: parameter.detach() for name, parameter in self.module.named_parameters()}
        same = [
            name
            for name, parameter in model.named_parameters()
            if not parameter.requires_grad and _is_same(parameter.detach(), averaged[name])
        ]
        kept = {name: average for name, average in averaged.items() if name not in set(same)}
        return {"decay": self.decay, "steps": int(self._averaged.n_averaged), "weights": kept, "as_model": same}

    @torch.no_grad()
    def restore(self, saved: dict[str, Any], model: nn.Module) -> None:
        """Become what :meth:`state` gave; the model has its weights of then."""
        same = set(saved.get("as_model", ()))  # earlier versions wrote all
        theirs = {name: parameter.detach() for name, parameter in model.named_parameters() if name in same}
        weights: dict[str, Tensor] = {**theirs, **saved["weights"]}
        own = dict(self.module.named_parameters())
        if own.keys() != weights.keys() or saved["decay"] != self.decay:
            raise ValueError(
                f"its averaged weights are those of ema={saved['decay']} and {len(weights)} parameters, and this run "
                f"has ema={self.decay} and {len(own)}"
            )
        for name, parameter in own.items():
            parameter.copy_(weights[name])
        self._averaged.n_averaged.fill_(int(saved["steps"]))


def _is_same(one: Tensor, other: Tensor) -> bool:
    return one.device == other.device and torch.equal(as_bytes(one), as_bytes(other))
