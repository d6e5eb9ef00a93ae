"""Which rows of which columns the samples are; torch's Subset and ConcatDataset of columns have such as well."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import ConcatDataset, Subset, TensorDataset

from brim.data.batches.batch import Batch, leaves_of, map_leaves
from brim.data.cache import CachedDataset
from brim.data.columns.columns import column_length, column_tensors, columns_of
from brim.errors import DataError
from brim.sizes import bytes_of


@dataclass(frozen=True)
class ColumnView:
    """One or several sets of columns, counted through, and ``rows``: each sample's row in them (None: as they come).

    ``owners`` are the data sets that the columns were taken from, with the tuple they had then. ``is_constant`` says
    that nobody can write to them: files of the cache, read-only arrays.
    """

    parts: tuple[Batch, ...]
    rows: Tensor | None = None
    owners: tuple[tuple[TensorDataset, tuple[Tensor, ...]], ...] = ()
    is_constant: bool = False

    def __len__(self) -> int:
        return self.stored if self.rows is None else len(self.rows)

    @property
    def stored(self) -> int:
        """How many rows the columns have, whether they are samples or not."""
        return sum(column_length(part) for part in self.parts)

    @property
    def row_bytes(self) -> int:
        rows, columns = column_length(self.parts[0]), column_tensors(self.parts[0])
        return max(1, sum(bytes_of(column) for column in columns) // rows)

    def is_replaced(self) -> bool:
        """Whether a data set has other tensors now than when they were taken from it."""
        return any(owner.tensors is not tensors for owner, tensors in self.owners)

    def select(self, rows: Tensor) -> list[Tensor]:
        """These rows of every column, on the columns' devices."""
        if len(self.parts) == 1:
            columns, on_device = column_tensors(self.parts[0]), {}
            for device in {column.device for column in columns}:
                on_device[device] = rows.to(device, non_blocking=device.type == "cuda")
            return [column.index_select(0, on_device[column.device]) for column in columns]
        return [_gathered(list(columns), rows) for columns in zip(*map(column_tensors, self.parts), strict=True)]


def view_of(data: Any) -> ColumnView | None:
    """The columns that ``data`` consists of, or None where its samples must be asked for one by one.

    >>> view_of(Subset(TensorDataset(torch.arange(5)), [3, 1])).rows
    tensor([3, 1])
    """
    if type(data) is Subset:
        return _subset(data)
    if type(data) is ConcatDataset:
        return _concatenation(data)
    columns = columns_of(data)
    if columns is None:
        return None
    owners = ((data, data.tensors),) if type(data) is TensorDataset else ()
    return ColumnView((columns,), None, owners, _is_constant(data))


def rests_on_tensors(data: Any) -> bool:
    """Whether torch's default collate makes of its samples what its columns are: a TensorDataset, or parts of some."""
    if type(data) is Subset:
        return rests_on_tensors(data.dataset)
    if type(data) is ConcatDataset:
        return all(map(rests_on_tensors, data.datasets))
    return isinstance(data, TensorDataset)


def _is_data_set(data: Any) -> bool:
    """Whether a number asks it for a row: a tuple or dict of columns gives a column."""
    return isinstance(data, TensorDataset | Tensor | np.ndarray | CachedDataset | Subset | ConcatDataset)


def _subset(data: Subset[Any]) -> ColumnView | None:
    whole = view_of(data.dataset) if _is_data_set(data.dataset) else None
    indices = None if whole is None else _whole_numbers(data.indices)
    if whole is None or indices is None:
        return None
    size = len(whole)
    beyond = indices[(indices < -size) | (indices >= size)]
    if len(beyond):
        raise DataError(f"a Subset asks for sample {int(beyond[0])} of a data set of {size:,}")
    rows = torch.where(indices < 0, indices + size, indices)
    return ColumnView(whole.parts, rows if whole.rows is None else whole.rows[rows], whole.owners, whole.is_constant)


def _whole_numbers(indices: Any) -> Tensor | None:
    if isinstance(indices, Tensor):
        indices = indices.cpu().numpy()
    try:
        numbers = np.asarray(indices)
    except ValueError:
        return None
    if numbers.ndim != 1 or (numbers.dtype.kind not in "iu" and numbers.size):
        return None
    return torch.from_numpy(numbers.astype(np.int64))


def _concatenation(data: ConcatDataset[Any]) -> ColumnView | None:
    views = [view_of(part) if _is_data_set(part) else None for part in data.datasets]
    found = [view for view in views if view is not None]
    if len(found) < len(views) or not _fit_together(found):
        return None
    if np.cumsum([len(view) for view in found]).tolist() != list(data.cumulative_sizes):
        return None  # one of them has changed its length, which torch does not notice
    rows, offset = [], 0
    for view in found:
        rows.append(offset + (torch.arange(len(view)) if view.rows is None else view.rows))
        offset += view.stored
    owners = tuple(owner for view in found for owner in view.owners)
    parts = tuple(part for view in found for part in view.parts)
    return ColumnView(parts, torch.cat(rows), owners, all(view.is_constant for view in found))


def _fit_together(views: list[ColumnView]) -> bool:
    """Whether rows of all of them can stand in one batch."""
    kinds = [_kind(part) for view in views for part in view.parts]
    return bool(kinds) and all(kind == kinds[0] for kind in kinds)


def _kind(columns: Batch) -> Any:
    leaves = [(column.dtype, column.shape[1:], column.device) for column in column_tensors(columns)]
    return map_leaves(lambda _: None, columns), leaves


def _is_constant(data: Any) -> bool:
    if isinstance(data, CachedDataset):
        return True
    arrays = leaves_of(data)
    return bool(arrays) and all(isinstance(leaf, np.ndarray) and not leaf.flags.writeable for leaf in arrays)


def _gathered(columns: list[Tensor], rows: Tensor) -> Tensor:
    """Rows of columns that lie one after the other, without laying them there."""
    first, start = columns[0], 0
    picked = torch.empty((len(rows), *first.shape[1:]), dtype=first.dtype, device=first.device)
    rows = rows.to(first.device)
    for column in columns:
        here = ((rows >= start) & (rows < start + len(column))).nonzero().flatten()
        if len(here):
            picked.index_copy_(0, here, column.index_select(0, rows[here] - start))
        start += len(column)
    return picked
