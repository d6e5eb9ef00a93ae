"""What a batch consists of: its tensors, how many samples it has, and a copy of its containers."""

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor

DEEPEST = 6


def tensors_of(batch: Any, depth: int = DEEPEST) -> Iterator[Tensor]:
    """Every tensor in a batch of any nesting.

    >>> import torch
    >>> [tuple(t.shape) for t in tensors_of({"x": torch.ones(2, 3), "rest": [torch.ones(2), "name"]})]
    [(2, 3), (2,)]
    """
    if isinstance(batch, Tensor):
        yield batch
    elif depth <= 0 or isinstance(batch, str | bytes | int | float):
        return
    elif isinstance(batch, Mapping):
        for value in batch.values():
            yield from tensors_of(value, depth - 1)
    elif isinstance(batch, list | tuple):
        for value in batch:
            yield from tensors_of(value, depth - 1)
    elif hasattr(batch, "__dict__"):
        yield from tensors_of(vars(batch), depth - 1)


def samples_in(batch: Any) -> int:
    """How many samples a batch has: the length of its first tensor that has one."""
    return next((len(tensor) for tensor in tensors_of(batch) if tensor.dim() > 0), 0)


def with_own_containers(batch: Any) -> Any:
    """The same tensors in new containers: a script may take something out of a batch that is handed to it again."""
    if isinstance(batch, Tensor | str | bytes | int | float) or batch is None:
        return batch
    if type(batch) is tuple or type(batch) is list:
        return type(batch)(with_own_containers(value) for value in batch)
    if type(batch) is dict:
        return {key: with_own_containers(value) for key, value in batch.items()}
    try:
        return copy.copy(batch)
    except Exception:
        return batch
