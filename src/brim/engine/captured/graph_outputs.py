"""What a graph leaves in its own memory, as values that outlive the next replay: tensors in any nesting."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from brim.engine.captured.report import Refusal
from brim.errors import a_type

PLAIN = (bool, int, float, complex, str, type(None))


def check_outputs(outputs: Any) -> None:
    """Refuse what cannot be copied out of a graph: objects that may hold its tensors out of sight."""
    for leaf in tree_leaves(outputs):
        if not isinstance(leaf, (Tensor, *PLAIN)):
            raise Refusal(f"the model's outputs hold {a_type(leaf)}, which a graph cannot give back")


def copied(outputs: Any) -> Any:
    """The same nesting with tensors of its own.

    >>> copied((torch.ones(1), {"count": 3}))
    (tensor([1.]), {'count': 3})
    """
    return tree_map(lambda leaf: leaf.clone() if isinstance(leaf, Tensor) else leaf, outputs)


def poison(outputs: Any) -> None:
    """Overwrite every floating-point tensor, so that one which a replay does not write is seen."""
    for leaf in tree_leaves(outputs):
        if isinstance(leaf, Tensor) and leaf.is_floating_point():
            leaf.fill_(math.nan)


def difference(one: Any, other: Any) -> float:
    """By which part of its norm a tensor of one differs from the other's, at most; infinite where they are unlike.

    >>> difference((torch.tensor([3.0, 4.0]), 1), (torch.tensor([3.0, 4.5]), 1))
    0.1
    """
    ones, others = tree_leaves(one), tree_leaves(other)
    if len(ones) != len(others):
        return math.inf
    return max((_relative_distance(*pair) for pair in zip(ones, others, strict=True)), default=0.0)


def _relative_distance(one: Any, other: Any) -> float:
    if not isinstance(one, Tensor) or not isinstance(other, Tensor):
        return 0.0 if type(one) is type(other) and one == other else math.inf
    if one.shape != other.shape or one.dtype != other.dtype:
        return math.inf
    if torch.equal(one, other) or torch.allclose(one, other, rtol=0.0, atol=0.0, equal_nan=True):
        return 0.0
    if not one.is_floating_point():
        return math.inf
    norm = float(one.double().norm())
    apart = float((one.double() - other.double()).norm()) / norm if norm else math.inf
    return apart if math.isfinite(apart) else math.inf
