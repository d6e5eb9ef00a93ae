"""Functions that remember what they computed (``functools.lru_cache``): positions, anchors, tables of rotations.

They remember by size, type and device, and in a forecast the device is the GPU's. A fake tensor that stayed in such a
cache would come back in the training; one of the card that is in it already would get into the forecast.
"""

import functools
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_leaves


@contextmanager
def caches_forget_tensors() -> Iterator[None]:
    """Caches are emptied afterwards that hold fake tensors, and before that hold tensors of a GPU."""
    if torch.cuda.is_initialized():
        _forget(lambda tensor: tensor.is_cuda)
    try:
        yield
    finally:
        _forget(lambda tensor: isinstance(tensor, FakeTensor))


def _forget(is_meant: Callable[[Tensor], bool]) -> None:
    caches = [one for one in gc.get_objects() if type(one) is functools._lru_cache_wrapper]
    for cache in caches:
        if any(isinstance(held, Tensor) and is_meant(held) for held in _held_by(cache)):
            cache.cache_clear()


def _held_by(cache: Any) -> Iterator[Any]:
    """What it would answer with, among other things that it holds."""
    for held in gc.get_referents(cache):
        yield from tree_leaves(held)
