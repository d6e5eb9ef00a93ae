"""Columns that are no tensors yet: pandas' frames and series, and lists of numbers beside arrays.

pandas is never imported here: whoever hands over a frame has done so.
"""

import sys
from collections.abc import Mapping
from itertools import pairwise
from numbers import Number
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brim.errors import DataError, a_type, some_of

MOST_NAMED = 8  # columns in a sentence


def plain_columns(data: Any) -> Any:
    """``data`` with frames, series, and lists of numbers that stand beside columns, as arrays; else as it is.

    A frame is the matrix of its columns, a series a vector. Both are copied, once.

    >>> plain_columns((np.ones((2, 3)), [0, 1]))[1]
    tensor([0, 1])
    """
    if is_pandas(data):
        return _array(data)
    if type(data) not in (tuple, dict):
        return data
    parts = list(data.values() if isinstance(data, dict) else data)
    if not any(_is_other(part) for part in parts):
        return data
    has_frames = any(is_pandas(part) for part in parts)
    if not has_frames and not _are_columns(parts, may_be_lists=isinstance(data, dict)):
        return data
    _check_index([part for part in parts if is_pandas(part) and hasattr(part, "iloc")])
    made = [_column(part, has_frames) for part in parts]
    return dict(zip(data, made, strict=True)) if isinstance(data, dict) else tuple(made)


def is_pandas(data: Any) -> bool:
    """Whether it is a DataFrame, a Series, an Index or an array of pandas' (``df["name"].values`` of texts, say)."""
    return _library(data) == "pandas" and hasattr(data, "to_numpy")


def _is_other(part: Any) -> bool:
    """What is not a column as it stands, and may become one."""
    return is_pandas(part) or type(part) in (list, tuple, dict)


def _are_columns(parts: list[Any], may_be_lists: bool) -> bool:
    """Whether arrays and lists of as many numbers stand beside each other; lists alone are columns in a dict only."""
    lists = [part for part in parts if type(part) is list]
    arrays = [part for part in parts if isinstance(part, Tensor | np.ndarray) and part.ndim]
    if len(lists) + len(arrays) < len(parts) or not (arrays or may_be_lists) or not lists:
        return False
    return len({len(part) for part in parts}) == 1 and all(_holds_numbers(part) for part in lists)


def _holds_numbers(items: list[Any]) -> bool:
    if not items:
        return False
    if all(isinstance(item, Number) for item in items):
        return True
    return all(type(item) is list and len(item) == len(items[0]) and _holds_numbers(item) for item in items)


def _column(part: Any, beside_frames: bool) -> Any:
    if is_pandas(part):
        return _array(part)
    if type(part) in (tuple, dict):
        return plain_columns(part)
    if type(part) is not list:
        return part
    if beside_frames and not _holds_numbers(part):
        raise DataError("a list beside a DataFrame or Series holds something that is no number; encode it as numbers")
    return torch.tensor(part)  # which makes float32 of Python's numbers, as everywhere in torch


def _array(data: Any) -> np.ndarray[Any, Any]:
    """The numbers of a frame or series, in memory of their own, row by row."""
    columns = [data.iloc[:, place] for place in range(data.shape[1])] if data.ndim == 2 else [data]
    if not columns or not len(data):
        raise DataError(f"{a_type(data)} of shape {tuple(data.shape)} is empty")
    _check_numbers(columns, data)
    arrays = [column.to_numpy(dtype=_numpy_dtype(column.dtype)) for column in columns]
    if data.ndim == 1:
        return np.array(arrays[0])
    common = np.result_type(*[array.dtype for array in arrays])
    return np.stack([array.astype(common, copy=False) for array in arrays], axis=1)


def _numpy_dtype(dtype: Any) -> Any:
    """Of pandas' own types (Int64, boolean) the one of numpy's that holds the same."""
    return getattr(dtype, "numpy_dtype", dtype)


def _check_numbers(columns: list[Any], data: Any) -> None:
    """Name all columns that are no numbers, or lack some."""
    numeric = sys.modules["pandas"].api.types.is_numeric_dtype
    kind = type(data).__name__
    odd = [column for column in columns if not numeric(column.dtype)]
    if odd:
        named = some_of((f"{_name(column)} ({column.dtype})" for column in odd), MOST_NAMED)
        what = f"has columns that are no numbers: {named}" if data.ndim > 1 else f"holds no numbers: {named}"
        raise DataError(f"the {kind} {what}; {_cure(odd, data)}")
    missing = [_name(column) for column in columns if column.dtype.kind in "iub" and column.isna().any()]
    if missing:
        raise DataError(
            f"the {kind} has columns of whole numbers with gaps: {', '.join(missing[:MOST_NAMED])}; fill them "
            "(df.fillna(0)), or drop their rows (df.dropna())"
        )


def _name(column: Any) -> str:
    name = getattr(column, "name", None)
    return "y" if name is None else str(name)


def _cure(odd: list[Any], data: Any) -> str:
    """What to write for columns that are no numbers; those of numbers as texts or objects are not to be encoded."""
    if data.ndim == 1:
        one = "y" if hasattr(data, "iloc") else "pd.Series(y)"
        return (
            f"pd.to_numeric({one})"
            if _are_written_numbers(data)
            else f"encode them ({one}.astype('category').cat.codes.astype('int64'))"  # the codes are int8
        )
    if all(map(_are_written_numbers, odd)):
        names = [column.name for column in odd[:MOST_NAMED]]
        return f"they hold numbers as texts or objects: hand over df.assign(**df[{names!r}].apply(pd.to_numeric))"
    words = next(column for column in odd if not _are_written_numbers(column))
    return (
        f"encode them (df[{words.name!r}].astype('category').cat.codes), or leave them out (df.select_dtypes('number'))"
    )


def _are_written_numbers(column: Any) -> bool:
    """Whether all are numbers for ``pandas.to_numeric``."""
    kinds = sys.modules["pandas"].api.types
    if not (kinds.is_object_dtype(column.dtype) or kinds.is_string_dtype(column.dtype)):
        return False
    try:
        sys.modules["pandas"].to_numeric(sys.modules["pandas"].Series(column))
    except (ValueError, TypeError):
        return False
    return True


def _check_index(frames: list[Any]) -> None:
    """Rows are taken by position. Frames with the same labels in another order would be matched wrongly."""
    for one, other in pairwise(frames):
        same_labels = len(one) == len(other) and not one.index.equals(other.index)
        if same_labels and one.index.is_unique and set(one.index) == set(other.index):
            raise DataError(
                "the rows of X and y have the same labels in another order, and rows are taken by position; hand over "
                "y.loc[X.index], or reset_index(drop=True) on both"
            )


def refuse_other_frames(data: Any) -> None:
    """Refuse tables of other libraries, and several data sets in one, with what to hand over."""
    library, name = _library(data), type(data).__name__
    if library == "polars":
        raise DataError(f"a {name} of polars is not read; hand over df.to_numpy(), or df.to_torch()")
    if library == "pyarrow" and hasattr(data, "to_pandas"):
        raise DataError(f"a {name} of pyarrow is not read; hand over table.to_pandas()")
    if library == "datasets" and isinstance(data, Mapping):
        names = ", ".join(map(repr, list(data)[:MOST_NAMED]))
        raise DataError(f"a {name} holds several data sets ({names}); hand over one: ds[{next(iter(data), 'train')!r}]")


def _library(data: Any) -> str:
    return type(data).__module__.split(".")[0]
