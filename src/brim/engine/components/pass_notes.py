"""What one pass of a loss says beside the loss: numbers to log, and the outputs that metrics see."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from brim.engine.components.summed_loss import Loss
from brim.errors import ConfigError

OUTPUTS = "outputs"
Number = Tensor | float | Loss


@dataclass
class Taken:
    """What was said in a pass."""

    numbers: list[tuple[str, Number]] = field(default_factory=list)
    outputs: Any = None
    has_outputs: bool = False


class PassNotes:
    """Where a loss leaves what it says beside itself. Nobody takes it, and it is gone: trials of a loss log nothing.

    >>> notes = PassNotes()
    >>> notes.log("lost", 1.0)
    >>> with notes.taking() as taken:
    ...     notes.log("kl", 0.5)
    >>> taken.numbers
    [('kl', 0.5)]
    """

    def __init__(self) -> None:
        self._taken: Taken | None = None

    @property
    def are_taken(self) -> bool:
        return self._taken is not None

    def log(self, name: str, value: Number) -> None:
        """A number of this pass: a mean over what the loss is a mean over, or ``brim.Loss(total, count)``."""
        if self._taken is not None:
            self._taken.numbers.append((name, detached(name, value)))

    def take_extras(self, returned: Mapping[Any, Any]) -> None:
        """What a loss returned beside ``"loss"``: single numbers are logged, ``"outputs"`` is for metrics."""
        if self._taken is None:
            return
        for name, value in returned.items():
            if name == OUTPUTS:
                self._taken.outputs, self._taken.has_outputs = value, True
            elif name != "loss" and _is_number(value):
                self.log(str(name), value)

    @contextmanager
    def taking(self) -> Iterator[Taken]:
        """Within, what is said is taken; another pass within this one has its own."""
        before, self._taken = self._taken, Taken()
        try:
            yield self._taken
        finally:
            self._taken = before


def detached(name: str, value: Number) -> Number:
    """A number as it can be kept: without its graph. Anything else is refused."""
    if isinstance(value, Tensor) and value.numel() == 1:
        return value.detach().reshape(())
    if isinstance(value, int | float):
        return value
    if isinstance(value, Loss):
        return Loss(value.total.detach(), value.count.detach() if isinstance(value.count, Tensor) else value.count)
    shape = f" of shape {tuple(value.shape)}" if isinstance(value, Tensor) else ""
    raise ConfigError(
        f"log({name!r}, ...) takes a number, a tensor with one number, or brim.Loss(total, count), and got a "
        f"{type(value).__name__}{shape}"
    )


def weighted(number: Number, count: Tensor | float, device: torch.device) -> tuple[Tensor, Tensor | float]:
    """Total and count of a number that is a mean over ``count`` things.

    >>> weighted(0.5, 4, torch.device("cpu"))
    (tensor(2.), 4)
    """
    if isinstance(number, Loss):
        return number.total.to(device), number.count
    mean = torch.as_tensor(number, dtype=torch.float32, device=device)
    return mean * count, count


def _is_number(value: Any) -> bool:
    return value.dim() == 0 if isinstance(value, Tensor) else isinstance(value, int | float | Loss)
