"""A look at a data set: what reading costs, in this process and with some workers, and what reading does to it."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from brim.data.batches.batch import Batch, leaves_of
from brim.data.probing.dry_run import WouldWriteFiles, discard_output, dry_run
from brim.data.probing.state import StateWatch
from brim.data.randomness.order import batch_bounds
from brim.data.reading.batched import TRIED_SAMPLES, batched_access
from brim.data.reading.one_batch import BatchReader, Delivery, Draw, Failure
from brim.data.reading.samples import WorkerDraws, WorkerSettings, draws_of, worker_pool
from brim.data.reading.workers import BatchCost, Rate
from brim.sizes import bytes_of

T = TypeVar("T")
PROBE_SECONDS = 2.0
LONGEST_PROBE_BATCH = 0.25  # seconds: where a batch takes longer, fewer samples of it are tried
LONGEST_BATCHED_TRIAL = 0.5  # seconds that its samples may take one by one: where decoding takes long, asking does not


@dataclass(frozen=True)
class ProbeResult:
    """What a few samples showed. ``cost`` is that of one; None where there is ``trouble``, which says why.

    ``changes`` names an attribute that reading changes. ``gain`` is how many times faster the data set was when asked
    for many samples at once, where that gave the same.
    """

    cost: BatchCost | None = None
    changes: str | None = None
    gain: float | None = None
    trouble: str | None = None


def probe_dataset(reader: BatchReader, samples: int, try_batches: bool = False) -> ProbeResult:
    """Read a few samples where that leaves no trace, and say what was seen."""
    # Looked at here, once: a forked process has what was seen, and what other processes write to was met on the way.
    before = _Watches.of(reader)
    try:
        found = dry_run(lambda apart: _look(apart, samples, try_batches, before), reader, is_shared=before.met_shared)
    except WouldWriteFiles:
        return ProbeResult(trouble="it writes files while it is read, so it is not tried out")
    return found or ProbeResult(trouble="it cannot be tried out without leaving a trace")


class _Watches(NamedTuple):
    """The data set and the collate function of a reader, as they were."""

    dataset: StateWatch
    collate: StateWatch

    @classmethod
    def of(cls, reader: BatchReader) -> "_Watches":
        return cls(StateWatch(reader.dataset), StateWatch(reader.collate))

    @property
    def met_shared(self) -> bool:
        return self.dataset.met_shared_memory or self.collate.met_shared_memory

    def changed(self) -> str | None:
        return self.dataset.changed() or ("collate_fn" if self.collate.changed() is not None else None)


def _look(reader: BatchReader, samples: int, try_batches: bool, before: _Watches) -> ProbeResult:
    watches = before if before.dataset.is_of(reader.dataset) else _Watches.of(reader)  # not of a copy
    cost = quick_probe(reader, samples)
    if cost is None:
        return ProbeResult(trouble="its samples cannot be read")
    changes, gain = watches.changed(), None
    if try_batches and changes is None and cost.seconds * 2 * TRIED_SAMPLES < LONGEST_BATCHED_TRIAL:
        access = batched_access(reader.dataset, samples, watches.dataset)
        gain = None if access is None else access[1]
    return ProbeResult(cost, changes, gain)


def tensor_bytes(batch: Batch) -> tuple[int, int]:
    """Bytes and number of the tensors of a batch."""
    sizes = [bytes_of(leaf) for leaf in leaves_of(batch) if isinstance(leaf, Tensor)]
    return sum(sizes), len(sizes)


def quick_probe(reader: BatchReader, samples: int) -> BatchCost | None:
    """What one sample costs, from four of them; None where they fail."""
    times = []
    for index in {0, samples // 3, samples // 2, samples - 1}:
        began = time.perf_counter()
        delivery = reader.__getitems__(Draw([index], index))
        if not isinstance(delivery, Delivery):
            return None
        times.append(time.perf_counter() - began)
        volume, tensors = tensor_bytes(delivery.batch)
    return BatchCost(min(times), max(times), volume, tensors)


def sample_cost(reader: BatchReader, samples: int) -> BatchCost | None:
    """What one sample costs, found out without a trace; None where that cannot be, or samples fail."""
    return _in_dry_run(lambda apart: quick_probe(apart, samples), reader)


def batch_cost(reader: BatchReader, samples: int, batch_size: int) -> tuple[BatchCost, int] | None:
    """What a batch costs, and how many samples a batch has that is worth trying; None where samples fail."""
    return _in_dry_run(lambda apart: _batch_cost(apart, samples, batch_size), reader)


def _in_dry_run(function: Callable[[BatchReader], T | None], reader: BatchReader) -> T | None:
    try:
        return dry_run(function, reader)
    except WouldWriteFiles:  # seldom, as it did not when it was looked at
        return None


def _batch_cost(reader: BatchReader, samples: int, batch_size: int) -> tuple[BatchCost, int] | None:
    order = torch.randperm(samples, generator=torch.Generator("cpu").manual_seed(0))
    size, read, deadline = min(2, batch_size, samples), 0, time.perf_counter() + PROBE_SECONDS
    seconds: list[float] = []
    while not seconds or (len(seconds) < 9 and time.perf_counter() < deadline):
        indices = order[torch.arange(read, read + size) % samples].tolist()
        began = time.perf_counter()
        delivery = reader.__getitems__(Draw(indices, read))
        if not isinstance(delivery, Delivery):
            return None
        took = time.perf_counter() - began
        volume, tensors = tensor_bytes(delivery.batch)
        read += size
        per_sample = took / size
        wanted = max(1, min(batch_size, samples, int(LONGEST_PROBE_BATCH / max(per_sample, 1e-9))))
        if size < wanted:  # the first, small one says how long the others may be
            size, seconds = wanted, []
            continue
        seconds.append(took)
    times = sorted(seconds)
    scale = batch_size / size
    usual, slowest = times[len(times) // 2], times[min(len(times) - 1, int(0.95 * len(times)))]
    return BatchCost(usual * scale, slowest * scale, int(volume * scale), tensors), size


def rate_by_workers(
    reader: BatchReader, samples: int, batch_size: int, probe_size: int, settings: WorkerSettings
) -> Rate:
    """A function that measures batches per second with workers started for the purpose."""

    def rate(count: int, prefetch: int) -> float:
        if count == 0:
            here = _in_dry_run(lambda apart: _rate_here(apart, samples, probe_size), reader)
            return (here or 0.0) * probe_size / batch_size
        pool = worker_pool(
            reader,
            WorkerDraws(endless(samples, probe_size)),
            replace(settings, count=count, prefetch=prefetch, init=_Silently(settings.init)),
            persistent=False,
        )
        batches: Iterator[Any] | None = None
        try:
            batches = iter(pool)
            if any(
                isinstance(batch, Failure) for batch in islice(batches, count)
            ):  # start-up: the first of each worker
                return 0.0
            began, rounds, elapsed = time.perf_counter(), 0, 0.0
            while rounds < 2 or elapsed < 1.0:  # whole rounds: workers that take equally long deliver in waves
                for _ in islice(batches, count):
                    pass
                rounds, elapsed = rounds + 1, time.perf_counter() - began
        except Exception:  # workers that cannot do this: a data set on a GPU, or one that cannot be pickled
            return 0.0
        finally:
            del batches
        return rounds * count * probe_size / batch_size / elapsed

    return rate


@dataclass(frozen=True)
class _Silently:
    """What a worker does first that is there to be measured; a class, because spawned workers need it pickled."""

    init: Callable[[int], None] | None

    def __call__(self, worker: int) -> None:
        discard_output()
        if self.init is not None:
            self.init(worker)


def _rate_here(reader: BatchReader, samples: int, size: int) -> float:
    """Batches per second in this process."""
    batches, began = 0, time.perf_counter()
    for draw in endless(samples, size):
        reader.__getitems__(draw)
        batches, elapsed = batches + 1, time.perf_counter() - began
        if elapsed > 1.0:
            break
    return batches / elapsed


def endless(samples: int, size: int) -> Iterator[Draw]:
    """Batches of so many of the samples, epoch after epoch."""
    epoch = 0
    while True:
        order = torch.randperm(samples, generator=torch.Generator("cpu").manual_seed(epoch))
        yield from draws_of(order, batch_bounds(samples, min(size, samples)), epoch)
        epoch += 1
