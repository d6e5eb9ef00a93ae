"""Memory that runs out when a test says so: at a call, above a number of samples, in a pass, or in any function."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

Fails = Callable[[int], bool]


def ran_out() -> torch.OutOfMemoryError:
    return torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


class At:
    """Says yes at these calls, counted from one."""

    def __init__(self, *numbers: int) -> None:
        self.numbers, self.calls = numbers, 0

    def __call__(self, samples: int = 0) -> bool:
        self.calls += 1
        return self.calls in self.numbers


class Above:
    """Says yes above so many samples, and so many times at most."""

    def __init__(self, limit: int, times: int | None = None) -> None:
        self.limit, self.times = limit, times

    def __call__(self, samples: int) -> bool:
        if samples <= self.limit or self.times == 0:
            return False
        if self.times is not None:
            self.times -= 1
        return True


def failing(function: Callable[..., Any], at: At, error: Callable[[], BaseException] = ran_out) -> Callable[..., Any]:
    """The function, which fails instead of being called where ``at`` says so: an optimizer's step, a copy, a save."""

    def run(*args: Any, **settings: Any) -> Any:
        if at():
            raise error()
        return function(*args, **settings)

    return run


class Gate(nn.Module):
    """Passes on what it gets; it runs out of memory when ``fails`` says so, in the forward or in the backward pass.

    ``training``: in which mode it may fail; None for both.
    """

    def __init__(
        self, fails: Fails | None = None, where: str = "forward", error: Callable[[], BaseException] = ran_out,
        training: bool | None = True,
    ) -> None:  # fmt: skip
        super().__init__()
        self.fails, self.where, self.error, self.mode = fails or At(), where, error, training

    def forward(self, x: Tensor) -> Tensor:
        if (self.mode is not None and self.training is not self.mode) or not self.fails(len(x)):
            return x
        if self.where == "forward":
            raise self.error()
        x = x * 1
        if not x.requires_grad:  # no backward pass comes of it
            return x
        x.register_hook(self._fail)
        return x

    def _fail(self, gradient: Tensor) -> None:
        raise self.error()
