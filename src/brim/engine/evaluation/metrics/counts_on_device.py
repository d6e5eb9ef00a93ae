"""Counting for torchmetrics without asking the device: ``torch.bincount`` waits for it, to learn the largest number."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode


class CountsOnDevice(TorchFunctionMode):
    """Within, ``torch.bincount(numbers, minlength=n)`` counts 0 to n - 1, and nothing waits for the device.

    torchmetrics always says how many there are. Numbers beyond are an error for it at once; here they are noted, and
    whoever reads the results asks for them first.

    >>> with CountsOnDevice() as counts:
    ...     torch.bincount(torch.tensor([0, 2, 2]), minlength=3)
    tensor([1, 0, 2])
    >>> counts.are_complete
    True
    """

    def __init__(self) -> None:
        super().__init__()
        self._beyond: Tensor | None = None  # how many were below 0, and how many above

    @property
    def are_complete(self) -> bool:
        """Whether every number was among those that were counted; asks the device."""
        return self._beyond is None or not bool(self._beyond.any())

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func is torch.bincount and len(args) == 1 and kwargs.keys() == {"minlength"} and kwargs["minlength"] > 0:
            return self._counts(args[0], kwargs["minlength"])
        return func(*args, **kwargs)

    def _counts(self, numbers: Tensor, most: int) -> Tensor:
        """One place more at either end takes those that are beyond."""
        places = numbers.long().clamp(-1, most).add_(1)
        counts = places.new_zeros(most + 2).scatter_add_(0, places, places.new_ones(()).expand_as(places))
        beyond = counts[:: most + 1]
        self._beyond = beyond.clone() if self._beyond is None else self._beyond.add_(beyond)
        return counts[1:-1]
