"""The way that samples take to become batches, chosen by what the data set can do and by measurement.

In this order: columns (kept on the device where they fit), batched access, workers or none of them. Every way gives the
same samples in the same order, so a choice changes the speed and nothing else.
"""

from collections.abc import Callable, Iterator, Mapping, Sized
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils.data import IterableDataset

from brim.data.batch import Batch, map_leaves
from brim.data.batched import BatchedAccess, BatchedSource, batched_access
from brim.data.columns import ColumnRows, ColumnSource, column_tensors, columns_of
from brim.data.order import batch_bounds
from brim.data.packed_list import packed
from brim.data.probing import batch_cost, probe_twin, quick_look, rate_by_workers, tensor_bytes
from brim.data.reading import BatchReader, Collate
from brim.data.samples import SampleSource, WorkerSettings
from brim.data.seeding import seeded
from brim.data.times import FeedTimes
from brim.data.workers import Memory, WorkerChoice, check_shared_memory, choose_workers, machine_budget
from brim.errors import DataError
from brim.hardware.host import available_memory

CLEARLY_SLOWER = 0.5  # than samples one by one, on the few of a try: real batches gain more by being read at once
WORTH_WORKERS = 5.0  # seconds: an epoch that is read faster than this in one process is not worth starting any


class Source(Protocol):
    """Batches by position."""

    samples: int

    def read(self, order: Tensor | None, bounds: Iterator[tuple[int, int]], key: int) -> Iterator[Batch]: ...


@dataclass(frozen=True)
class Wish:
    """What the user asked for. ``workers`` is None where the number is to be found."""

    batch_size: int
    feed: str = "auto"
    collate: Collate | None = None
    workers: int | None = None
    prefetch: int | None = None
    settings: WorkerSettings = field(default_factory=WorkerSettings)
    computes_here: bool = False  # the CPU trains as well, and needs its cores


@dataclass(frozen=True)
class FeedChoice:
    """How a data set is read, and why so."""

    path: str
    reason: str
    workers: int = 0
    prefetch: int = 2

    def sentence(self) -> str:
        return f"data: {self.path}, because {self.reason}"


def choose_source(data: Any, wish: Wish, times: FeedTimes, report: Callable[[str], None]) -> tuple[Source, FeedChoice]:
    """The shortest way that is possible, or the one asked for."""
    columns = columns_of(data)
    if columns is not None:
        if wish.collate is None and wish.feed in ("auto", "resident", "batched"):
            return ColumnSource(columns, times), FeedChoice("columns", "rows are gathered many at a time")
        if isinstance(data, tuple | dict):  # indexed as they are, these would give a column or nothing
            data = ColumnRows(columns)
    samples = dataset_length(data)
    access = _access(data, samples, wish)
    if wish.feed == "resident" or (
        wish.feed == "auto" and access is not None and _is_small_and_constant(data, access, samples)
    ):
        columns = read_whole(data, wish.collate, access, samples, report)
        return ColumnSource(columns, times), FeedChoice("columns", "the data set was read into memory once")
    reader = BatchReader(data, wish.collate, None if access is None else access.read)
    found = _find_workers(_twin(reader, access), samples, wish, report)
    settings = replace(wish.settings, count=found.workers, prefetch=found.prefetch)
    if found.workers == 0 and access is not None:
        why = "it takes lists of indices, and gave bit for bit what its samples give"
        return BatchedSource(access, samples, times), FeedChoice("batched access in this process", why)
    if found.workers:
        data = packed(data)
        reader = BatchReader(data, wish.collate, None if access is None else replace(access, dataset=data).read)
    path = f"{found.workers} worker{'s' if found.workers > 1 else ''}" if found.workers else "samples one by one"
    return SampleSource(reader, samples, settings, times), FeedChoice(path, found.reason, found.workers, found.prefetch)


def dataset_length(data: Any) -> int:
    """The length of a map-style data set."""
    if isinstance(data, IterableDataset) or not isinstance(data, Sized) or isinstance(data, Mapping):
        raise DataError(
            f"{type(data).__name__} is neither columns of tensors nor a data set with a length; hand over an "
            "IterableDataset, or something with len() and []"
        )
    if len(data) == 0:
        raise DataError(f"the data set {type(data).__name__} is empty")
    return len(data)


def _access(data: Any, samples: int, wish: Wish) -> BatchedAccess | None:
    """Batched access, where it is possible, faster and not ruled out."""
    if wish.collate is not None or wish.feed not in ("auto", "batched", "resident"):
        if wish.feed == "batched":
            raise DataError("feed='batched' and a collate_fn contradict each other: collating needs samples one by one")
        return None
    found = batched_access(probe_twin(data), samples)
    if found is None and wish.feed == "batched":
        raise DataError(
            f"feed='batched' is not possible: {type(data).__name__} indexed by a list of numbers does not give what "
            "its samples give, put together; let it return the batch for a list, or use feed='auto'"
        )
    if found is None or (found[1] < CLEARLY_SLOWER and wish.feed == "auto"):
        return None
    return replace(found[0], dataset=data)


def _is_small_and_constant(data: Any, access: BatchedAccess, samples: int) -> bool:
    """An HF dataset without a transform: its rows never change, and reading them anew costs more than keeping them."""
    if not type(data).__module__.startswith("datasets.") or getattr(data, "format", {}).get("type") == "custom":
        return False
    rows = len(column_tensors(access.template)[0]) if isinstance(access.template, dict | list | tuple | Tensor) else 0
    room = available_memory()
    volume, _ = tensor_bytes(access.template)
    leaves: list[Any] = []
    map_leaves(leaves.append, access.template)
    regular = all(isinstance(leaf, Tensor) and leaf.dim() and len(leaf) == rows for leaf in leaves)
    return regular and room is not None and volume * samples // max(1, rows) < room // 8


def read_whole(
    data: Any, collate: Collate | None, access: BatchedAccess | None, samples: int, report: Callable[[str], None]
) -> Batch:
    """Every sample once, as columns in memory."""
    reader = BatchReader(data, collate, None if access is None else access.read)
    report(f"reading the {samples:,} samples of {type(data).__name__} into memory once")
    with seeded(0, restore=True):
        parts = [reader.read(list(range(a, b))).batch for a, b in batch_bounds(samples, 1024)]
    rows: list[list[Tensor]] = [column_tensors(part) for part in parts]
    if any(not isinstance(leaf, Tensor) for part in rows for leaf in part):
        raise DataError(f"feed='resident' keeps tensors, and {type(data).__name__} also gives something else")
    try:
        joined = iter([torch.cat(column) for column in zip(*rows, strict=True)])
    except (RuntimeError, ValueError) as error:
        raise DataError(
            f"the samples of {type(data).__name__} differ in shape and cannot be kept as columns"
        ) from error
    return map_leaves(lambda _: next(joined), parts[0])


def _twin(reader: BatchReader, access: BatchedAccess | None) -> BatchReader:
    """A reader to try things on, of a copy of the data set."""
    copied = probe_twin(reader.dataset)
    return BatchReader(copied, reader.collate, None if access is None else replace(access, dataset=copied).read)


def _find_workers(reader: BatchReader, samples: int, wish: Wish, report: Callable[[str], None]) -> WorkerChoice:
    """How many workers: as asked for, remembered, or measured."""
    prefetch = wish.prefetch or 2
    if wish.feed == "samples" or wish.workers == 0:
        return WorkerChoice(0, prefetch, "so it was asked for", {})
    seen = quick_look(reader, samples)
    if wish.workers is not None:
        if seen is not None:
            check_shared_memory(wish.workers, prefetch, seen.bytes * wish.batch_size)
        return WorkerChoice(wish.workers, prefetch, "so it was asked for", {})
    if seen is None:  # it fails: said with its index when it is read in earnest
        return WorkerChoice(0, prefetch, "its samples cannot be read", {})
    if seen.seconds * samples < WORTH_WORKERS and wish.feed == "auto":
        return WorkerChoice(0, prefetch, f"an epoch is read in about {seen.seconds * samples:.2g} s here", {})
    return _measure_workers(reader, samples, wish, report)


def _measure_workers(reader: BatchReader, samples: int, wish: Wish, report: Callable[[str], None]) -> WorkerChoice:
    measured = batch_cost(reader, samples, wish.batch_size)
    if measured is None:
        return WorkerChoice(0, 2, "its samples cannot be read", {})
    cost, probe_size = measured
    budget = machine_budget(computes_here=wish.computes_here)
    memory = Memory(reader.dataset, samples, wish.batch_size, cost, budget.cores)
    kept = memory.recall()
    if kept is None:
        rate = rate_by_workers(reader, samples, wish.batch_size, probe_size, wish.settings)
        takes = f"a batch takes {cost.seconds:.2g} s to read: measuring how many workers help (at most 30 s)"
        kept = choose_workers(cost, budget, rate, lambda: report(takes))
        if len(kept.measured) > 1:  # else nothing was measured that could not be said again at once
            memory.keep(kept)
    most, limit = budget.most_workers(cost, wish.prefetch or kept.prefetch)
    if kept.workers > most:  # remembered from a day with more room
        kept = replace(kept, workers=most, reason=f"there is no room for more ({limit})")
    if kept.workers == 0 and wish.feed == "workers":
        kept = replace(kept, workers=1)
    return kept if wish.prefetch is None else replace(kept, prefetch=wish.prefetch)
