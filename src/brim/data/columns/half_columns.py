"""Tuples and dicts that were meant as columns, of which a part is none: what is told of that part."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor

from brim.errors import DataError, a_type, some_of

ROWS = "each part of (X, y), or of a dict, holds a number or a row for each sample"


def refuse_half_columns(data: Any) -> None:
    """Refuse a tuple or dict that has a tensor or array with rows beside something else, naming that; and two lists.

    A tuple of them would be taken for ready batches, the tensor as the first of them.

    >>> refuse_half_columns((np.ones((2, 3)), ["cat", "dog"]))
    Traceback (most recent call last):
    brim.errors.DataError: y is a list of 2 (str); each part of (X, y), or of a dict, holds a number or a row for each \
sample: encode it as numbers, leave it out, or hand over a Dataset
    """
    if type(data) is not tuple and not isinstance(data, Mapping):
        return
    parts = {str(name): part for name, part in _named(data).items()}
    if type(data) is tuple and len(parts) == 2 and all(type(part) is list for part in parts.values()):
        _refuse_two_lists(*data)
    if not any(_has_rows(part) for part in parts.values()):
        return
    odd = [f"{name} is {_described(part)}" for name, part in parts.items() if _is_odd(part)]
    if odd:
        raise DataError(f"{some_of(odd, 4)}; {ROWS}: encode it as numbers, leave it out, or hand over a Dataset")


def _named(data: Any) -> Mapping[Any, Any]:
    if isinstance(data, Mapping):
        return {repr(name): part for name, part in data.items()}
    return dict(zip("Xy" if len(data) == 2 else map(str, range(len(data))), data, strict=True))


def _refuse_two_lists(first: list[Any], second: list[Any]) -> None:
    if len(first) == len(second) > 2:
        raise DataError(
            "two lists of as many items may be X and y, or two samples: hand over (torch.tensor(X), torch.tensor(y)) "
            "for the former, and a list of samples, [(x, y), ...], otherwise"
        )


def _has_rows(part: Any) -> bool:
    return isinstance(part, Tensor | np.ndarray) and part.ndim > 0


def _is_odd(part: Any) -> bool:
    if isinstance(part, Tensor | np.ndarray):
        return part.ndim == 0
    return part is None or isinstance(part, str | bytes | int | float | list)


def _described(part: Any) -> str:
    if part is None:
        return "None"
    if isinstance(part, list) and part:
        return f"a list of {len(part):,} ({type(part[0]).__name__})"
    return f"{a_type(part)} without rows" if isinstance(part, Tensor | np.ndarray) else a_type(part)
