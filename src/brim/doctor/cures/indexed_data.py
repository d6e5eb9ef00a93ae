"""Data sets of a user's own class that can be indexed by many places at once, found out by trying.

``self.users[index]`` gives one row for a number and a whole batch for an array of numbers. Whether all that a data set
does is of that kind is seen by comparing the two ways on real batches; one that draws random numbers is left alone.
"""

from typing import Any

import numpy as np
import torch
from torch.utils.data import default_collate

from brim.data.randomness.generators import host_marks


def indexed_batch(dataset: Any, indices: list[int], like: Any) -> Any:
    """The samples at some places by one index, in the form of a collated batch; None where it cannot be had so."""
    try:
        return _in_form(dataset[np.asarray(indices)], like)
    except Exception:  # whatever a user's code says of an index that it does not know
        return None


def gives_whole_batches(dataset: Any, indices: list[int]) -> bool:
    """Whether one index gives the same batch, bit by bit, as collating sample by sample, and no numbers are drawn."""
    before = host_marks()
    plain = default_collate([dataset[index] for index in indices])
    if host_marks() != before:
        return False
    at_once = indexed_batch(dataset, indices, plain)
    return at_once is not None and host_marks() == before and _is_same(at_once, plain)


def _in_form(found: Any, like: Any) -> Any:
    """What indexing gave, in the containers and types that collating gives."""
    if isinstance(like, torch.Tensor):
        return torch.as_tensor(found)
    if isinstance(like, dict):
        return {key: _in_form(found[key], like[key]) for key in like}
    if isinstance(like, list | tuple):
        if len(found) != len(like):
            raise ValueError("another number of columns")
        return type(like)(_in_form(one, other) for one, other in zip(found, like, strict=True))
    raise TypeError("neither a tensor nor a container of tensors")


def _is_same(one: Any, other: Any) -> bool:
    if isinstance(other, torch.Tensor):
        return one.dtype == other.dtype and one.shape == other.shape and torch.equal(one, other)
    if isinstance(other, dict):
        return all(_is_same(one[key], other[key]) for key in other)
    return all(_is_same(a, b) for a, b in zip(one, other, strict=True))
