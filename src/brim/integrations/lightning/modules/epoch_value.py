"""Numbers of batches as one number of an epoch, in the operations that Lightning uses, so that it has the same bits."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from brim.errors import ConfigError

NAMES: dict[Any, str] = {
    "mean": "mean", "avg": "mean", "sum": "sum", "min": "min", "max": "max", torch.mean: "mean", torch.sum: "sum",
    torch.min: "min", torch.max: "max",
}  # fmt: skip


def reduction_of(name: str, reduce_fx: Any) -> str:
    """By which of its names a number is reduced.

    >>> reduction_of("loss", torch.mean)
    'mean'
    """
    try:
        return NAMES[reduce_fx]
    except (KeyError, TypeError):
        raise ConfigError(
            f"self.log({name!r}) has reduce_fx={reduce_fx!r}; use 'mean', 'sum', 'min' or 'max'"
        ) from None


class EpochValue:
    """The mean (by the number of samples), sum, least or greatest of what was logged under one name.

    >>> value = EpochValue("mean")
    >>> value.add(torch.tensor(1.0), 1)
    >>> value.add(torch.tensor(4.0), 2)
    >>> value.result().item()
    3.0
    """

    def __init__(self, reduction: str) -> None:
        self.reduction = reduction
        self.value: Tensor | None = None
        self.count: Tensor | float = 0

    def add(self, value: Tensor | float, count: Tensor | float) -> None:
        """One more number, of so many samples."""
        number = as_float(value)
        if self.reduction == "mean":
            number = number * count
            self.count = self.count + count
        if self.value is None:
            self.value = torch.zeros((), dtype=number.dtype, device=number.device) + number if self._adds else number
        elif self._adds:
            self.value = self.value + number
        else:
            choose: Callable[[Tensor, Tensor], Tensor] = torch.minimum if self.reduction == "min" else torch.maximum
            self.value = choose(self.value, number)

    @property
    def _adds(self) -> bool:
        return self.reduction in ("mean", "sum")

    def result(self) -> Tensor:
        """Of all that was added."""
        assert self.value is not None
        return self.value / self.count if self.reduction == "mean" else self.value


def as_float(value: Tensor | float) -> Tensor:
    """A number as Lightning adds it up: in single precision, or double where it is."""
    number = value.detach() if isinstance(value, Tensor) else torch.tensor(value)
    number = number.reshape(())
    return number if number.dtype in (torch.float32, torch.float64) else number.to(torch.get_default_dtype())
