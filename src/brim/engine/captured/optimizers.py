"""Optimizers inside a graph: their numbers must live on the device."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.optim import (
    ASGD,
    SGD,
    Adadelta,
    Adam,
    Adamax,
    AdamW,
    NAdam,
    Optimizer,
    RMSprop,
    Rprop,
)

from brim.engine.captured.report import Refusal

FUSED = (Adam, AdamW, SGD)  # one kernel, which reads the learning rate from the device
# Their learning rate is baked in. Not RAdam: on the device its corrections are computed in single precision, where
# they cancel, and the training differs by more than rounding.
CAPTURABLE = (RMSprop, NAdam, Adamax, Adadelta, ASGD, Rprop)
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

    def undo(self) -> None:
        for state, name, value in self._on_host:
            state[name] = value.copy_(state[name])
        for group, settings in zip(self.optimizer.param_groups, self._settings, strict=True):
            group.update(settings)
        if isinstance(self.optimizer, FUSED):
            if self._scales is None:
                del self.optimizer._step_supports_amp_scaling
            else:
                self.optimizer._step_supports_amp_scaling = self._scales


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

    def scale(self, factor: float) -> None:
        """Move the learning rates that move, to see whether a graph follows."""
        for value, tensor in zip(self.values, self.tensors, strict=True):
            if self.move and not isinstance(value, Tensor):
                tensor.fill_(value * factor)

    def refill(self) -> None:
        self.scale(1.0)

    @contextmanager
    def on_device(self) -> Iterator[None]:
        """The groups as a graph is to see them."""
        before = [(group["lr"], group.get("capturable")) for group in self.optimizer.param_groups]
        for group, tensor in zip(self.optimizer.param_groups, self.tensors, strict=True):
            if self.move:
                group["lr"] = tensor
            if "capturable" in group:
                group["capturable"] = True
        try:
            yield
        finally:
            for group, (lr, capturable) in zip(self.optimizer.param_groups, before, strict=True):
                group["lr"] = lr
                if "capturable" in group:
                    group["capturable"] = capturable


def settings_of(optimizer: Optimizer) -> list[tuple[Any, ...]]:
    """What of the groups is baked into a graph."""
    return [
        (len(group["params"]), *[value for name, value in group.items() if name not in FREE])
        for group in optimizer.param_groups
    ]
