"""A data set that is read into memory as a whole, and again when it has changed."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from brim.data.batches.batch import Batch, leaves_of, map_leaves
from brim.data.columns.column_view import ColumnView
from brim.data.columns.columns import column_tensors
from brim.data.probing.state import StateWatch
from brim.data.randomness.generators import host_marks
from brim.data.randomness.order import batch_bounds
from brim.data.randomness.seeding import seeded
from brim.data.reading.batched import BatchedAccess
from brim.data.reading.one_batch import BatchReader, Collate
from brim.errors import DataError
from brim.hardware.host import available_memory
from brim.sizes import bytes_of

SAMPLES_AT_ONCE = 1024


class ResidentData:
    """Gives the data set as columns; reads it anew where it has changed since.

    Raises DataError where it draws random numbers: its augmentation would stay as it was drawn once.
    """

    def __init__(
        self, data: Any, collate: Collate | None, access: BatchedAccess | None, report: Callable[[str], None]
    ) -> None:
        self._data = data
        self._reader = BatchReader(data, collate, None if access is None else access.read)
        self._report = report
        self._view: ColumnView | None = None
        self._watch: StateWatch | None = None
        self._hf_mark: Any = None

    def __call__(self) -> ColumnView:
        if self._view is None or self._has_changed():
            self._view = ColumnView((self._read(),), is_constant=True)
            self._note()
        return self._view

    def _has_changed(self) -> bool:
        if is_hf_dataset(self._data):  # its rows are files, and whatever changes it gives it another fingerprint
            return bool(_hf_mark(self._data) != self._hf_mark)
        return self._watch is not None and self._watch.changed() is not None

    def _note(self) -> None:
        if is_hf_dataset(self._data):
            self._hf_mark = _hf_mark(self._data)
            return
        self._watch = StateWatch(self._data)

    def _read(self) -> Batch:
        watch = None if is_hf_dataset(self._data) else StateWatch(self._data)
        name = type(self._data).__name__
        columns = read_all(self._reader, len(self._data), self._report)
        changed = None if watch is None else watch.changed()
        if changed is not None:
            self._report(f"{name} changes while it is read ({changed}): feed='resident' keeps what it gave this time")
        return columns


def read_all(reader: BatchReader, samples: int, report: Callable[[str], None]) -> Batch:
    """Every sample once, as columns in memory."""
    name = type(reader.dataset).__name__
    report(f"reading the {samples:,} samples of {name} into memory once")
    with seeded(0):
        before = host_marks()
        parts = []
        for start, stop in batch_bounds(samples, SAMPLES_AT_ONCE):
            parts.append(reader.read(list(range(start, stop))).batch)
            if host_marks() != before:
                raise DataError(
                    f"feed='resident' keeps samples as they are read once, and {name} draws random numbers for them: "
                    "its augmentation would be the same in every epoch; use feed='auto', or brim.cached for what comes "
                    "before the augmentation"
                )
    rows: list[list[Tensor]] = [column_tensors(part) for part in parts]
    if any(not isinstance(leaf, Tensor) for part in rows for leaf in part):
        raise DataError(f"feed='resident' keeps tensors, and {name} also gives something else")
    try:
        joined = iter([torch.cat(column) for column in zip(*rows, strict=True)])
    except (RuntimeError, ValueError) as error:
        raise DataError(f"the samples of {name} differ in shape and cannot be kept as columns") from error
    return map_leaves(lambda _: next(joined), parts[0])


def is_hf_dataset(data: Any) -> bool:
    """A Hugging Face data set whose rows are its files' rows. One with a transform of the user's (set_transform) is
    asked batch by batch, as torch's loader does. By module and not by package: many a project has its own ``datasets``.
    """
    if type(data).__module__ != "datasets.arrow_dataset":
        return False
    return bool(getattr(data, "format", {}).get("type") != "custom")


def is_small(access: BatchedAccess, samples: int) -> bool:
    """Whether the rows that ``access`` gives are tensors that fit into memory with ease: kept, not read anew."""
    leaves = leaves_of(access.template)
    rows = len(leaves[0]) if leaves and isinstance(leaves[0], Tensor) and leaves[0].dim() else 0
    regular = rows > 0 and all(isinstance(leaf, Tensor) and leaf.dim() and len(leaf) == rows for leaf in leaves)
    room = available_memory()
    volume = sum(bytes_of(leaf) for leaf in leaves) if regular else 0
    return regular and room is not None and volume * samples // rows < room // 8


def _hf_mark(data: Any) -> Any:
    return getattr(data, "_fingerprint", None), repr(getattr(data, "format", None)), len(data)
