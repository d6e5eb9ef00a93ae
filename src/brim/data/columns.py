"""Data that consists of columns: tensors or arrays of equal length, which are read many rows at a time."""

import time
import warnings
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, TensorDataset

from brim.data.batch import Batch, children, is_container, map_leaves
from brim.data.cache import CachedDataset
from brim.data.order import rows_of
from brim.data.times import FeedTimes
from brim.errors import DataError

MOST_BLOCK_BYTES = 64 << 20  # rows gathered at once: enough to cost little per batch, little enough to cost no memory
MOST_BATCHES_PER_BLOCK = 256


def columns_of(data: Any) -> Batch | None:
    """The columns of tensors that ``data`` consists of, or None if samples must be asked for one by one."""
    if type(data) is TensorDataset:
        return list(data.tensors)  # a list, because that is what torch's default collate makes of its samples
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
        return column
    if column.dtype.hasobject or column.dtype.kind in "USV":
        raise DataError(
            f"a column of {column.dtype} (texts or Python objects) cannot become a tensor; encode it as numbers, or "
            "hand over a Dataset"
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a read-only memory map: brim copies rows out of it and writes none
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
        raise DataError(f"the columns have different lengths ({', '.join(map(str, lengths))}); they must be equal")
    if lengths[0] == 0:
        raise DataError("the data is empty: its columns have length 0")
    return lengths[0]


def column_tensors(columns: Batch) -> list[Tensor]:
    """The columns, without the containers they sit in."""
    found: list[Tensor] = []
    map_leaves(found.append, columns)
    return found


def column_bytes(columns: Batch) -> int:
    """What the columns take, on whatever device."""
    return sum(column.numel() * column.element_size() for column in column_tensors(columns))


class ColumnRows:
    """Columns as a data set of samples, for those who want them one by one."""

    def __init__(self, columns: Batch) -> None:
        self.columns = columns
        self.samples = column_length(columns)

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> Batch:
        return map_leaves(lambda column: column[index], self.columns)


class ColumnSource:
    """Batches of columns, on the device where the columns are. They can be put onto another one at any time.

    Rows are gathered for many batches at once and handed out as views of that block: an epoch costs few operations,
    whatever the batch size. Blocks are copies, so a model that changes its batch in place does not change the data.
    """

    def __init__(self, columns: Batch, times: FeedTimes | None = None) -> None:
        self.columns = columns
        self.times = times or FeedTimes()
        self.samples = column_length(columns)
        self.is_resident = False  # kept where they are used
        self._tensors = column_tensors(columns)
        self._row_bytes = max(1, column_bytes(columns) // self.samples)

    @property
    def bytes(self) -> int:
        return column_bytes(self.columns)

    @property
    def device(self) -> torch.device:
        return self._tensors[0].device

    def place(self, device: torch.device) -> None:
        """Keep the columns on ``device`` from now on; an epoch that is being read goes on from there."""
        self.is_resident = True
        self.columns = map_leaves(lambda column: column.to(device), self.columns)
        self._tensors = column_tensors(self.columns)

    def read(self, order: Tensor | None, bounds: Iterator[tuple[int, int]], key: int = 0) -> Iterator[Batch]:
        """The batches between ``bounds`` of the rows in ``order``. Nothing is drawn at random, so ``key`` is unused."""
        batches = 1  # doubled with each block: the first batch comes at once
        while block := list(islice(bounds, batches)):
            if order is not None and self.is_resident and order.device != self.device:
                order = order.to(self.device)  # once, so that no block has to bring its rows
            yield from self._read_block(order, block)
            batch_bytes = max(1, (block[0][1] - block[0][0]) * self._row_bytes)
            batches = max(1, min(2 * batches, MOST_BATCHES_PER_BLOCK, MOST_BLOCK_BYTES // batch_bytes))

    def _read_block(self, order: Tensor | None, block: list[tuple[int, int]]) -> Iterator[Batch]:
        began = time.perf_counter()
        rows, containers = self._gather(order, block), self.columns
        self.times.fetch += time.perf_counter() - began
        start = 0
        for first, stop in block:
            end = start + stop - first
            parts = iter([column[start:end] for column in rows])
            yield map_leaves(lambda _: next(parts), containers)  # noqa: B023 (used at once)
            start = end

    def _gather(self, order: Tensor | None, block: list[tuple[int, int]]) -> list[Tensor]:
        if order is None and len(block) == 1:
            return [column[block[0][0] : block[0][1]].clone() for column in self._tensors]
        home = self.device if self.is_resident else torch.device("cpu")
        rows, on_device = rows_of(order, block, home), {}
        for device in {column.device for column in self._tensors}:
            on_device[device] = rows.to(device, non_blocking=device.type == "cuda")
        return [column.index_select(0, on_device[column.device]) for column in self._tensors]
