"""Columns whose rows share memory: windows of a series, as ``Tensor.unfold`` gives them."""

import torch
from torch import Tensor

from brim.sizes import bytes_of


def is_overlapping(column: Tensor) -> bool:
    """Whether it has more numbers than memory.

    >>> is_overlapping(torch.arange(10).unfold(0, 4, 1))
    True
    """
    return column.layout is torch.strided and _span(column) < column.numel()


def stored_bytes(column: Tensor) -> int:
    """What a copy of a column takes: that of the memory under it, where rows share it."""
    return _span(column) * column.element_size() if is_overlapping(column) else bytes_of(column)


def moved(column: Tensor, device: torch.device | None) -> Tensor:
    """A column on another device. Of rows that share memory that memory alone is copied, and they share the copy."""
    if not is_overlapping(column):
        return column.to(device)
    memory = column.as_strided((_span(column),), (1,), column.storage_offset()).to(device)
    return memory.as_strided(column.shape, column.stride(), memory.storage_offset())


def _span(column: Tensor) -> int:
    """From the first number of a column to its last, in memory."""
    if not column.numel():
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(column.shape, column.stride(), strict=True))
