"""Batches of columns, gathered many rows at a time; rows may overlap in memory, as windows over a series do."""

import time
from collections.abc import Callable, Iterator
from itertools import islice

import torch
from torch import Tensor

from brim.data.batches.batch import Batch, map_leaves
from brim.data.columns.column_view import ColumnView
from brim.data.columns.columns import column_tensors
from brim.data.randomness.order import rows_of
from brim.data.times import FeedTimes
from brim.errors import DataError
from brim.sizes import bytes_of

MOST_BLOCK_BYTES = 64 << 20  # rows gathered at once: enough to cost little per batch, little enough to cost no memory
MOST_BATCHES_PER_BLOCK = 256

Versions = list[tuple[Tensor, int]]


class ColumnSource:
    """Batches of columns, on the device where the columns are. They can be put onto another one at any time.

    Rows are gathered for many batches at once and handed out as views of that block: an epoch costs few operations,
    whatever the batch size. Blocks are copies, so a model that changes its batch in place does not change the data.

    What the user changes is read anew: tensors that are replaced or written to are noticed before the next batch, a
    data set of which ``look`` gives another view before the next epoch. What numpy writes to cannot be noticed: where
    such memory was copied to another device, it is copied again with every epoch. Where ``is_written_between`` batches,
    those on the CPU are gathered one by one.
    """

    is_written_between = False

    def __init__(
        self, columns: Batch | ColumnView, times: FeedTimes | None = None, look: Callable[[], ColumnView] | None = None
    ) -> None:
        self.times = times or FeedTimes()
        self.is_resident = False  # kept where they are used
        self._look = look
        self._home: torch.device | None = None
        self._take(columns if isinstance(columns, ColumnView) else ColumnView((columns,)))

    @property
    def columns(self) -> Batch:
        """The columns that rows are gathered from."""
        return self._read.parts[0]

    @property
    def bytes(self) -> int:
        """What they take on the device."""
        columns = [column for part in self._view.parts for column in column_tensors(part)]
        if any(map(is_overlapping, columns)):
            return sum(map(stored_bytes, columns))
        return self._view.row_bytes * self.samples

    def block_bytes(self, batch_size: int) -> int:
        """At most what gathered rows take beside a batch and the next: a block is held until the next one is there."""
        batch = min(batch_size, self.samples) * self._row_bytes
        blocks = min(2 * _batches_at_once(batch) * batch, self.samples * self._row_bytes)
        return max(0, blocks - 2 * batch)

    @property
    def device(self) -> torch.device:
        return column_tensors(self._read.parts[0])[0].device

    def place(self, device: torch.device) -> None:
        """Keep the columns on ``device`` from now on; an epoch that is being read goes on from there."""
        self.is_resident = True
        self._home = device
        self._take(self._view)

    def refresh(self) -> None:
        """Look whether the data has changed, and take what it is now."""
        view = self._view if self._look is None else self._look()
        if not self._is_same(view) or (self._is_copied_elsewhere and _can_change_unnoticed(view)):
            self._take(view)

    def read(self, order: Tensor | None, bounds: Iterator[tuple[int, int]], key: int = 0) -> Iterator[Batch]:
        """The batches between ``bounds`` of the rows in ``order``. Nothing is drawn at random, so ``key`` is unused."""
        batches, source, rows = 1, self._read, self._rows(order)  # doubled with each block: the first comes at once
        while block := list(islice(bounds, batches)):
            done = 0
            while done < len(block):  # again where the data was changed or moved while its block was being handed out
                if not self._is_current():
                    self.refresh()
                if self._read is not source:
                    source, rows = self._read, self._rows(order)
                if rows is not None and self.is_resident and rows.device != self.device:
                    rows = rows.to(self.device)  # once, so that no block has to bring its rows
                for batch in self._read_block(rows, block[done:]):
                    yield batch
                    done += 1
                    if self._read is not source or not self._is_current():
                        break
            batches = min(2 * batches, _batches_at_once((block[0][1] - block[0][0]) * self._row_bytes))
            if self.is_written_between and self.device.type == "cpu":
                batches = 1

    def _take(self, view: ColumnView) -> None:
        """Read from this view from now on; from a copy, where it must be on another device."""
        self._view, self._read = view, view
        self.samples, self._row_bytes = len(view), view.row_bytes
        if self.samples == 0:
            raise DataError("the data is empty: none of its rows are samples")
        tensors = [column for part in view.parts for column in column_tensors(part)]
        self._is_copied_elsewhere = self._home is not None and any(column.device != self._home for column in tensors)
        if self._is_copied_elsewhere:
            self._read = on_device(view, self._home)
        self._versions: Versions = [(one, one._version) for one in tensors if not one.is_inference()]

    def _is_current(self) -> bool:
        """Asked of every batch, so it looks only at what costs nothing."""
        for tensor, version in self._versions:
            if tensor._version != version:
                return False
        return not (self._view.owners and self._view.is_replaced())

    def _is_same(self, view: ColumnView) -> bool:
        """Whether ``view`` is over the same memory as the one that is read, written to by nobody who says so."""
        if not self._is_current() or len(view.parts) != len(self._view.parts):
            return False
        rows = self._view.rows is view.rows or (
            self._view.rows is not None and view.rows is not None and torch.equal(self._view.rows, view.rows)
        )
        pairs = zip(view.parts, self._view.parts, strict=True)
        return rows and all(_places(one) == _places(other) for one, other in pairs)

    def _rows(self, order: Tensor | None) -> Tensor | None:
        """Where the samples of an order lie in the columns."""
        rows = self._read.rows
        if order is not None and len(order) > self.samples:
            raise DataError(f"the data has {self.samples:,} samples now, and had {len(order):,} when the epoch began")
        if rows is None or order is None:
            return order if rows is None else rows
        return rows[order.to(rows.device)]

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
            return [column[block[0][0] : block[0][1]].clone() for column in column_tensors(self.columns)]
        home = self.device if self.is_resident else torch.device("cpu")
        return self._read.select(rows_of(order, block, home))


def _batches_at_once(batch_bytes: int) -> int:
    return max(1, min(MOST_BATCHES_PER_BLOCK, MOST_BLOCK_BYTES // max(1, batch_bytes)))


def on_device(view: ColumnView, device: torch.device | None) -> ColumnView:
    """A copy on ``device``, of the rows alone that are samples; or whole, where rows share memory."""
    if any(is_overlapping(column) for part in view.parts for column in column_tensors(part)):
        parts = tuple(map_leaves(lambda column: moved(column, device), part) for part in view.parts)
        return ColumnView(parts, view.rows)
    if view.rows is None and len(view.parts) == 1:
        return ColumnView((map_leaves(lambda column: column.to(device), view.parts[0]),))
    rows = torch.arange(view.stored) if view.rows is None else view.rows
    picked = iter(view.select(rows))
    return ColumnView((map_leaves(lambda _: next(picked).to(device), view.parts[0]),))


def _places(columns: Batch) -> list[tuple[object, ...]]:
    return [
        (one.data_ptr(), one.shape, one.stride(), one.dtype, one.device) if one.layout is torch.strided else (id(one),)
        for one in column_tensors(columns)
    ]


def _can_change_unnoticed(view: ColumnView) -> bool:
    """Whether numpy, or whoever the memory belongs to, can write to it without torch's knowledge."""
    columns = [column for part in view.parts for column in column_tensors(part)]
    return not view.is_constant and any(
        column.device.type == "cpu" and not column.untyped_storage().resizable() for column in columns
    )


def is_overlapping(column: Tensor) -> bool:
    """Whether it has more numbers than memory.

    >>> is_overlapping(torch.arange(10).unfold(0, 4, 1))
    True
    """
    return column.layout is torch.strided and _span(column) < column.numel()


def stored_bytes(column: Tensor) -> int:
    """What a copy of a column takes: that of the memory under it, where rows share it."""
    return _span(column) * column.element_size() if is_overlapping(column) else bytes_of(column)


def moved(column: Tensor, device: torch.device | None) -> Tensor:
    """A column on another device. Of rows that share memory that memory alone is copied, and they share the copy."""
    if not is_overlapping(column):
        return column.to(device)
    memory = column.as_strided((_span(column),), (1,), column.storage_offset()).to(device)
    return memory.as_strided(column.shape, column.stride(), memory.storage_offset())


def _span(column: Tensor) -> int:
    """From the first number of a column to its last, in memory."""
    if not column.numel():
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(column.shape, column.stride(), strict=True))
