"""What somebody has handed over, or a model returned, in a few words."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from brim.errors import a_type, some_of

MOST_NAMES = 8  # of what a dict holds


def described(value: Any) -> str:
    """What it is, and what it holds.

    >>> described({"x": 1, "y": 2}), described((1, 2, 3)), described(None)
    ('a dict with x, y', 'a tuple of 3', 'None')
    """
    if value is None:
        return "None"
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    if isinstance(value, Mapping):
        return f"{a_type(value)} with {some_of(map(str, value), MOST_NAMES)}"
    return f"{a_type(value)} of {len(value)}" if isinstance(value, tuple | list) else a_type(value)
