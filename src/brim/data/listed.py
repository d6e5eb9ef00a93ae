"""What the items of a list are: single samples, or batches that are ready."""

from collections.abc import Sequence
from numbers import Number
from typing import Any

import numpy as np
from torch import Tensor

from brim.data.batches.batch import leaves_of

LOOKED_AT = 3  # items from either end


def are_samples(items: Sequence[Any]) -> bool:
    """Whether the items can be nothing but single samples. A list otherwise holds ready batches.

    Told by their shapes: no tensor with a dimension; one such beside a number (a picture and its class); or tensors
    that cannot share a batch dimension (8 features and 1 target, in one dimension each).

    >>> import torch
    >>> are_samples([(torch.zeros(8), torch.tensor(3))])
    True
    >>> are_samples([(torch.zeros(16, 8), torch.zeros(16))])
    False
    """
    looked_at = [*items[:LOOKED_AT], *items[LOOKED_AT:][-LOOKED_AT:]]
    return bool(looked_at) and all(_is_sample(item) for item in looked_at)


def _is_sample(item: Any) -> bool:
    leaves = leaves_of(item)
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor) and leaf.dim()]
    lengths = {len(tensor) for tensor in tensors}
    has_number = any(isinstance(leaf, Number | np.generic) or (isinstance(leaf, Tensor) and not leaf.dim())
                     for leaf in leaves)  # fmt: skip
    if not tensors:
        return True
    if has_number:
        return len(tensors) == 1 or len(lengths) > 1
    return len(lengths) > 1 and all(tensor.dim() == 1 for tensor in tensors)


def describe(items: Sequence[Any]) -> str:
    """Ready batches in a few words, and what to do if they were meant to be samples."""
    return (
        f"{len(items):,} ready batches, as they come (were these single samples, hand over "
        "brim.Loader(samples, batch_size=...) instead)"
    )
