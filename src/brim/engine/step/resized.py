"""Batches like those of a run, for the trials and forecasts that are made of it."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from brim.data import Batch, batch_length
from brim.data.batches.batch import first_tensor, is_container, map_children
from brim.errors import DataError


def batches_like(example: Batch) -> Callable[[int], tuple[tuple[Batch], dict[str, Any]]]:
    """The arguments of a forward call with a batch like this one of so many samples, as forecasts ask for them.

    >>> batches_like([torch.ones(3, 2), torch.arange(3)])(2)[0][0][1]
    tensor([0, 1])
    """
    length = batch_length(example)
    return lambda n: ((resized(example, length, n),), {})


def resized(batch: Batch, length: int, wanted: int) -> Batch:
    """A batch like this one with another number of samples: what a slice of it cuts is cut or repeated."""
    if isinstance(batch, Tensor):
        return _resized_tensor(batch, length, wanted)
    if isinstance(batch, PackedSequence) and wanted != length:
        raise DataError("a PackedSequence cannot be split, so nothing is known of smaller batches")
    if type(batch) in (list, tuple) and len(batch) == length and first_tensor(batch) is None:
        return type(batch)(batch[place % length] for place in range(wanted))
    return map_children(lambda part: resized(part, length, wanted), batch) if is_container(batch) else batch


def _resized_tensor(tensor: Tensor, length: int, wanted: int) -> Tensor:
    if tensor.dim() == 0 or tensor.shape[0] != length:
        return tensor.cpu()
    if tensor.is_floating_point():
        return torch.empty((wanted, *tensor.shape[1:]), dtype=tensor.dtype)
    return tensor.cpu()[torch.arange(wanted) % length]  # indices: theirs must be real
