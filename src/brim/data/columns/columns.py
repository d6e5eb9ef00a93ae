"""Data that consists of columns: tensors or arrays of equal length."""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, TensorDataset

from brim.data.batches.batch import Batch, children, is_container, leaves_of, map_leaves
from brim.data.cache import CachedDataset
from brim.errors import DataError
from brim.ignored_warnings import ignored_warnings


def columns_of(data: Any) -> Batch | None:
    """The columns of tensors that ``data`` consists of, or None if samples must be asked for one by one."""
    if type(data) is TensorDataset:
        return [_tensor(column) for column in data.tensors]  # a list, as torch's default collate makes of its samples
    if isinstance(data, Tensor | np.ndarray):
        return _tensor(data) if data.ndim else None
    if isinstance(data, CachedDataset):
        return data.columns  # None where its samples differ in shape
    if isinstance(data, Dataset | list) or not is_container(data):
        return None  # a list holds ready batches or samples: only a tuple or a dict of tensors means columns
    parts = list(children(data))
    if not parts or any(columns_of(part) is None for part in parts):
        return None
    return map_leaves(_tensor, data)


def _tensor(column: Any) -> Tensor:
    """A column as a tensor over the same memory."""
    if isinstance(column, Tensor):
        if column.layout is not torch.strided or column.is_nested:
            raise DataError(
                "a sparse or nested tensor has no rows that batches could be made of: hand over x.to_dense(), or a "
                "Dataset that makes a dense sample at a time"
            )
        return column
    if column.dtype.hasobject or column.dtype.kind in "USV":
        raise DataError(
            f"a column of {column.dtype} (texts or Python objects) cannot become a tensor; encode it as numbers, or "
            "hand over a Dataset"
        )
    with ignored_warnings():  # of a read-only memory map: brim copies rows out of it and writes none
        plain = np.asarray(column)
        if not plain.dtype.isnative or any(stride < 0 for stride in plain.strides):  # torch knows neither
            plain = np.ascontiguousarray(plain, dtype=plain.dtype.newbyteorder("="))
        try:
            return torch.from_numpy(plain)
        except TypeError as error:
            raise DataError(f"a column of {column.dtype} cannot become a tensor; turn it into numbers first") from error


def column_length(columns: Batch) -> int:
    """The length all columns share."""
    lengths = [len(column) for column in column_tensors(columns)]
    if len(set(lengths)) != 1:
        shown = ", ".join(map(str, lengths[:8])) + (", ..." if len(lengths) > 8 else "")
        raise DataError(f"the columns have different lengths ({shown}); they must be equal (samples go into a list)")
    if lengths[0] == 0:
        raise DataError("the data is empty: its columns have length 0")
    return lengths[0]


def column_tensors(columns: Batch) -> list[Tensor]:
    """The columns, without the containers they sit in."""
    return leaves_of(columns)


class ColumnRows:
    """Columns as a data set of samples, for those who want them one by one."""

    def __init__(self, columns: Batch) -> None:
        self.columns = columns
        self.samples = column_length(columns)

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> Batch:
        return map_leaves(lambda column: column[index], self.columns)
