"""The way that samples take to become batches, chosen by what the data set can do and by measurement.

In this order: columns (kept on the device where they fit), batched access by contract, workers or none of them. Every
way gives the same samples in the same order, so a choice changes the speed and nothing else.
"""

from collections.abc import Callable, Iterator, Mapping, Sized
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from torch import Tensor
from torch.utils.data import IterableDataset, default_collate

from brim.data.batches.batch import Batch
from brim.data.columns.column_source import ColumnSource
from brim.data.columns.column_view import view_of
from brim.data.columns.columns import ColumnRows, columns_of
from brim.data.probing.dry_run import WouldWriteFiles, dry_run
from brim.data.reading.batched import BatchedAccess, BatchedSource, batched_access
from brim.data.reading.dataset_probe import ProbeResult, batch_cost, probe_dataset, rate_by_workers, sample_cost
from brim.data.reading.one_batch import BatchReader, Collate
from brim.data.reading.resident import ResidentData, is_hf_dataset, is_small
from brim.data.reading.samples import SampleSource, WorkerSettings
from brim.data.reading.workers import RememberedChoice, WorkerChoice, choose_workers, machine_budget, shared_room
from brim.data.times import FeedTimes
from brim.errors import DataError

WORTH_WORKERS = 5.0  # seconds: an epoch that is read faster than this in one process is not worth starting any
Report = Callable[[str], None]
WORTH_TELLING = 1.5  # times faster


class Source(Protocol):
    """Batches by position."""

    samples: int

    def read(self, order: Tensor | None, bounds: Iterator[tuple[int, int]], key: int) -> Iterator[Batch]: ...


@dataclass(frozen=True)
class FeedRequest:
    """What the user asked for. ``workers`` is None where the number is to be found."""

    batch_size: int
    feed: str = "auto"
    collate: Collate | None = None
    workers: int | None = None
    prefetch: int | None = None
    settings: WorkerSettings = field(default_factory=WorkerSettings)
    computes_here: bool = False  # the CPU trains as well, and needs its cores
    ranks: int = 1  # each reads its share of every batch
    ranks_here: int = 1  # of them on this machine, whose cores and memory they share

    @property
    def rank_batch(self) -> int:
        """Samples of the largest share of a batch."""
        return -(-self.batch_size // self.ranks)


@dataclass(frozen=True)
class FeedChoice:
    """How a data set is read, and why so."""

    path: str
    reason: str
    workers: int = 0
    prefetch: int = 2

    def sentence(self) -> str:
        return f"data: {self.path}, because {self.reason}"


def choose_source(data: Any, request: FeedRequest, times: FeedTimes, report: Report) -> tuple[Source, FeedChoice]:
    """The shortest way that is possible, or the one asked for."""
    view = view_of(data)
    if view is not None and request.collate is None and request.feed in ("auto", "resident", "batched"):
        source = ColumnSource(view, times, look=lambda: _looked_at_again(data))
        return source, FeedChoice("columns", "rows are gathered many at a time")
    if view is not None and isinstance(data, tuple | dict):  # indexed as they are, these would give a column or nothing
        data = ColumnRows(columns_of(data))
    samples = dataset_length(data)
    access = _access(data, samples, request)
    if request.feed == "resident" or (request.feed == "auto" and access is not None and is_small(access, samples)):
        whole = ResidentData(data, request.collate, access, report)
        return ColumnSource(whole(), times, whole), FeedChoice("columns", "the data set was read into memory once")
    reader = BatchReader(data, request.collate, None if access is None else access.read)
    found = _find_workers(reader, samples, request, report)
    if found.workers == 0 and access is not None:
        by_name = "it was requested; its batches were compared with 34 samples, and are with one of each read"
        why = "its class promises that" if access.is_promised else by_name
        return BatchedSource(access, samples, times), FeedChoice("batched access in this process", why)
    settings = replace(
        request.settings,
        count=found.workers,
        prefetch=found.prefetch,
        are_asked_for=request.workers is not None or request.feed == "workers",
    )
    path = f"{found.workers} worker{'s' if found.workers > 1 else ''}" if found.workers else _in_process(data)
    return SampleSource(reader, samples, settings, times), FeedChoice(path, found.reason, found.workers, found.prefetch)


def _looked_at_again(data: Any) -> Any:
    view = view_of(data)
    if view is None:
        raise DataError(f"{type(data).__name__} no longer consists of columns; make a new Loader of it")
    return view


def _in_process(data: Any) -> str:
    if type(data) is list:
        return "the items of a list as samples, one by one"
    asks_for_many = getattr(data, "__getitems__", None)
    return "batches by its __getitems__, in this process" if asks_for_many else "samples one by one"


def dataset_length(data: Any) -> int:
    """The length of a map-style data set."""
    if isinstance(data, type):
        raise DataError(f"the class {data.__name__} is no data; hand over an object of it: {data.__name__}(...)")
    if isinstance(data, IterableDataset) or not isinstance(data, Sized) or isinstance(data, Mapping):
        raise DataError(
            f"{type(data).__name__} is neither columns of tensors nor a data set with a length; hand over an "
            "IterableDataset, or something with len() and []"
        )
    if len(data) == 0:
        raise DataError(f"the data set {type(data).__name__} is empty")
    return len(data)


def _access(data: Any, samples: int, request: FeedRequest) -> BatchedAccess | None:
    """Batched access, where it was asked for by name or the data set's class promises it; and what it gives agrees."""
    if request.feed == "batched" and request.collate is not None:
        raise DataError("feed='batched' and a collate_fn contradict each other: collating needs samples one by one")
    is_promised = request.feed in ("auto", "resident") and request.collate is None and is_hf_dataset(data)
    if request.feed != "batched" and not is_promised:
        return None
    access = _checked_access(data, samples)
    if access is None and request.feed == "batched":
        raise DataError(
            f"feed='batched' is not possible: {type(data).__name__} indexed by a list of numbers does not give what "
            "its samples give, put together, or reading changes it; let it return the batch for a list, or use "
            "feed='auto'"
        )
    return access


def _checked_access(data: Any, samples: int) -> BatchedAccess | None:
    """Batched access, if it gives what a few samples give; tried apart, where that can be done."""

    def without_data(apart: Any) -> tuple[BatchedAccess | None]:
        """What is handed back from another process, where the data set is another one and may be large."""
        found = batched_access(apart, samples)
        return (None if found is None else replace(found[0], dataset=None),)

    try:
        tried = dry_run(without_data, data)
    except WouldWriteFiles:
        raise DataError(
            f"feed='batched' cannot be checked: {type(data).__name__} writes files while it is read; use feed='auto'"
        ) from None
    (found,) = without_data(data) if tried is None else tried
    return None if found is None else replace(found, dataset=data, is_promised=is_hf_dataset(data))


def _find_workers(reader: BatchReader, samples: int, request: FeedRequest, report: Report) -> WorkerChoice:
    """How many workers: as asked for, remembered, or measured."""
    prefetch = request.prefetch or 2
    if request.feed in ("samples", "batched") and not request.workers:
        return WorkerChoice(0, prefetch, "it was requested", {})
    if request.workers:
        _check_room(reader, samples, request, prefetch)
        return WorkerChoice(request.workers, prefetch, "it was requested", {})
    may_batch = request.feed == "auto" and reader.collate is default_collate
    seen = probe_dataset(reader, samples, try_batches=may_batch and not getattr(reader.dataset, "__getitems__", None))
    _tell_of_batches(reader.dataset, seen, report)
    if request.workers is not None:
        return WorkerChoice(0, prefetch, "it was requested", {})
    keeps = _what_it_keeps(reader.dataset, seen)
    if keeps is not None and request.feed == "workers":
        report(f"{type(reader.dataset).__name__} {keeps}: each worker process does so for itself")
    elif keeps is not None:
        return WorkerChoice(0, prefetch, f"it {keeps}, which worker processes would each do for themselves", {})
    if seen.cost is None and request.feed == "workers":
        return WorkerChoice(1, prefetch, f"it was requested ({seen.trouble})", {})
    if seen.cost is None:  # where its samples fail, that is said with the index when it is read in earnest
        return WorkerChoice(0, prefetch, str(seen.trouble), {})
    if seen.cost.seconds * samples < WORTH_WORKERS and request.feed == "auto":
        return WorkerChoice(0, prefetch, f"an epoch is read in about {seen.cost.seconds * samples:.2g} s here", {})
    return _measure_workers(reader, samples, request, report)


def _check_room(reader: BatchReader, samples: int, request: FeedRequest, prefetch: int) -> None:
    """Refuse workers that /dev/shm has no room for. Where it is large they look at their first batches themselves,
    which takes no time before they start."""
    room = shared_room(request.workers or 0, prefetch)
    if room is not None and room.is_short and (cost := sample_cost(reader, samples)) is not None:
        room.check(cost.bytes * request.rank_batch * request.ranks_here)


def _what_it_keeps(data: Any, seen: ProbeResult) -> str | None:
    """What of a data set would be lost or multiplied in worker processes, in words."""
    if seen.changes is not None:
        return f"changes while it is read ({seen.changes})"
    if callable(getattr(data, "set_epoch", None)):
        return "is told the epoch (set_epoch)"
    return "asks which worker it is in (get_worker_info)" if _asks_for_its_worker(data) else None


def _asks_for_its_worker(data: Any) -> bool:
    """Whether its code, or that of the data set that it wraps, asks whether it is in a worker: none is what it has."""
    functions = [code for base in type(data).__mro__ for code in vars(base).values() if hasattr(code, "__code__")]
    if any("get_worker_info" in function.__code__.co_names for function in functions):
        return True
    inner = getattr(data, "dataset", None)
    return inner is not None and inner is not data and _asks_for_its_worker(inner)


def _tell_of_batches(data: Any, seen: ProbeResult, report: Report) -> None:
    if seen.gain is not None and seen.gain > WORTH_TELLING:
        report(
            f"{type(data).__name__} could be asked for many samples at once, {seen.gain:.0f}x as fast for the 34 that "
            'were tried: if its __getitem__ is meant to take lists of indices, brim.Loader(..., feed="batched") does so'
        )


def _measure_workers(reader: BatchReader, samples: int, request: FeedRequest, report: Report) -> WorkerChoice:
    measured = batch_cost(reader, samples, request.rank_batch)
    if measured is None:
        return WorkerChoice(0, request.prefetch or 2, "what a batch takes could not be measured", {})
    cost, probe_size = measured
    budget = machine_budget(request.ranks_here, request.computes_here)
    memory = RememberedChoice(reader.dataset, samples, request.rank_batch, cost, budget.cores)
    kept = memory.recall()
    if kept is None:
        rate = rate_by_workers(reader, samples, request.rank_batch, probe_size, request.settings)
        takes = f"a batch takes {cost.seconds:.2g} s to read: measuring how many workers help (at most 30 s)"
        kept = choose_workers(cost, budget, rate, lambda: report(takes))
        if len(kept.measured) > 1:  # else nothing was measured that could not be said again at once
            memory.keep(kept)
    most, limit = budget.most_workers(cost, request.prefetch or kept.prefetch)
    if kept.workers > most:  # remembered from a day with more room
        kept = replace(kept, workers=most, reason=f"there is no room for more ({limit})")
    if kept.workers == 0 and request.feed == "workers":
        kept = replace(kept, workers=1)
    return kept if request.prefetch is None else replace(kept, prefetch=request.prefetch)
