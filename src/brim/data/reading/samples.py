"""Batches of a data set whose samples are read one by one: in this process, or in worker processes."""

import gc
import multiprocessing
import os
import signal
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, get_worker_info

from brim.data.batches.batch import Batch, map_leaves
from brim.data.garbage import freeze_inherited, gc_paused
from brim.data.probing.dry_run import reset_signals
from brim.data.probing.state import brief_watch
from brim.data.randomness.order import GOLDEN, mix64
from brim.data.reading.one_batch import BatchReader, Changed, Delivery, Draw, Failure
from brim.data.reading.packed_list import Packing
from brim.data.reading.workers import shared_room
from brim.data.times import FeedTimes
from brim.errors import DataError, first_line

MOST_DEATHS = 2  # of workers, one after the other without a batch in between


@dataclass(frozen=True)
class WorkerSettings:
    """How worker processes work. None of them: this process reads."""

    count: int = 0
    prefetch: int = 2
    persistent: bool = True
    pin_memory: bool = False
    timeout: float = 0
    init: Callable[[int], None] | None = None
    context: Any = None
    are_asked_for: bool = True  # by the user; else brim chose them, and a data set that changes is read here instead


class SampleSource:
    """Reads batches by a :class:`BatchReader`; workers are kept between epochs where they may be."""

    def __init__(self, reader: BatchReader, samples: int, settings: WorkerSettings, times: FeedTimes) -> None:
        self.samples = samples
        self.settings = settings
        self.times = times
        self.report: Callable[[str], None] = lambda sentence: None
        self.data = reader.dataset
        # A worker's init function may do anything to the data set: it gets the data set itself.
        self._packing = Packing(self.data) if settings.count and settings.init is None else None
        self._reader = reader
        self._reader.is_watched = not settings.are_asked_for
        self._draws = WorkerDraws()
        self._workers: DataLoader[Any] | None = None
        self._busy = False

    def read(self, order: Tensor | None, bounds: Iterator[tuple[int, int]], key: int) -> Iterator[Batch]:
        """The batches between ``bounds`` of the samples in ``order``, drawing at random from ``key``."""
        draws, left_out = draws_of(order, bounds, key), 0
        with closing(self._read_here(draws) if self.settings.count == 0 else self._read_by_workers(draws, key)) as read:
            for delivery in read:
                left_out += delivery.left_out if isinstance(delivery, Delivery) else 0
                yield self._take(delivery)
        if left_out:
            plural = "s were" if left_out > 1 else " was"
            self.report(f"{left_out:,} damaged sample{plural} left out in this pass over {type(self.data).__name__}")

    def _read_here(self, draws: Iterator[Draw]) -> Generator[Delivery | Failure | Changed, None, None]:
        yield from map(self._reader.__getitems__, draws)

    def _read_by_workers(self, draws: Iterator[Draw], key: int) -> Generator[Delivery | Failure | Changed, None, None]:
        """What is delivered for the draws; where a worker dies, new ones go on with the batch that is missing."""
        watch = None if self.settings.are_asked_for else brief_watch(self.data)
        # Workers that are kept know the data set as it was when they started, as torch's do.
        are_running = self.settings.persistent and self._workers is not None
        if self._packing is not None and self._reader.read_many is None and not are_running:
            self._reader.dataset = self._packing.current()
        asked: deque[Draw] = deque()  # and not delivered yet: workers deliver in the order in which they were asked
        deaths = delivered = 0
        while True:
            draws, asked = chain(list(asked), draws), deque()
            lost: Exception | None = None
            deliveries = self._deliveries(_noting(draws, asked), key)
            for delivery in deliveries:
                if isinstance(delivery, Exception):
                    lost = delivery
                    break
                attribute = delivery.attribute if isinstance(delivery, Changed) else watch.changed() if watch else None
                if attribute is not None:
                    deliveries.close()
                    self._stay_here(attribute)
                    yield from self._read_here(chain(asked, draws))
                    return
                assert not isinstance(delivery, Changed)
                asked.popleft()
                deaths, delivered = 0, delivered + 1
                yield delivery
            if lost is None:
                return
            deaths += 1
            self._workers = None
            if deaths > MOST_DEATHS or isinstance(lost, TimeoutError):
                raise DataError(_death(lost, asked)) from lost
            if delivered == 0 and self.settings.context is not None:
                raise DataError(
                    f"no loader process could be started ({first_line(lost)}); where they are not forked, the script "
                    "must do its work under if __name__ == '__main__'"
                ) from lost
            self.report(f"a loader process died ({first_line(lost)}): new ones go on with the same batch")

    def _stay_here(self, attribute: str) -> None:
        """From now on this process reads: what changed is known to one process only, and must be known to all reads.

        Exact, because up to the batch at hand no batch has changed the data set.
        """
        self.settings = replace(self.settings, count=0)
        self._reader.dataset = self.data
        self.report(
            f"{type(self.data).__name__} changes while it is read or trained on ({attribute}): it is read in this "
            "process from here on; num_workers= reads it in processes all the same"
        )

    def _deliveries(
        self, draws: Iterator[Draw], key: int
    ) -> Generator[Delivery | Failure | Changed | Exception, None, None]:
        """What workers deliver; as the last thing, what ended them."""
        # One pool of persistent workers has one iterator: while an epoch uses it, others get a pool of their own.
        kept = self.settings.persistent and not self._busy
        if self._reader.room is None:  # by what is free before the first worker, whose own batches take of it
            self._reader.room = shared_room(self.settings.count, self.settings.prefetch)
        pool = self._pool(key) if kept else worker_pool(self._reader, WorkerDraws(), self.settings, False, key)
        pool.batch_sampler.draws = draws  # type: ignore[union-attr]
        self._busy = self._busy or kept
        try:
            yield from _started(pool)
        except (RuntimeError, OSError, EOFError) as error:  # what samples raise comes as a Failure, not as an exception
            if isinstance(error, RuntimeError) and "DataLoader timed out" in str(error):
                yield TimeoutError(str(error))
            elif isinstance(error, RuntimeError) and "DataLoader worker" not in str(error):
                raise
            else:
                yield error
        finally:
            if kept:
                self._busy = False

    def _pool(self, key: int) -> DataLoader[Any]:
        if self._workers is None:
            self._workers = worker_pool(self._reader, self._draws, self.settings, True, key)
        return self._workers

    def _take(self, delivery: Delivery | Failure | Changed) -> Batch:
        if isinstance(delivery, Failure):
            raise delivery.error_of_user()
        assert isinstance(delivery, Delivery)  # only workers look for changes
        self.times.fetch += delivery.fetch
        self.times.collate += delivery.collate
        if self.settings.pin_memory and self.settings.count == 0:
            return map_leaves(lambda leaf: leaf.pin_memory() if isinstance(leaf, Tensor) else leaf, delivery.batch)
        return delivery.batch


def draws_of(order: Tensor | None, bounds: Iterator[tuple[int, int]], key: int) -> Iterator[Draw]:
    """What to read for each batch. Each has its own key, by its position."""
    for first, stop in bounds:
        indices = list(range(first, stop)) if order is None else order[first:stop].tolist()
        yield Draw(indices, mix64(key + first * GOLDEN))


class WorkerDraws:
    """A batch sampler that is told what to draw before each epoch, so that one DataLoader keeps its workers."""

    def __init__(self, draws: Iterator[Draw] | None = None) -> None:
        self.draws = iter(()) if draws is None else draws

    def __iter__(self) -> Iterator[Draw]:
        return self.draws


def worker_pool(
    reader: BatchReader, draws: WorkerDraws, settings: WorkerSettings, persistent: bool, key: int = 0
) -> DataLoader[Any]:
    """torch's loader, which asks workers for whole batches. Their seeds come from ``key``, another one each epoch."""
    return DataLoader(
        reader,  # type: ignore[arg-type]
        batch_sampler=draws,  # type: ignore[arg-type]
        collate_fn=_as_it_is,
        num_workers=settings.count,
        prefetch_factor=settings.prefetch,
        persistent_workers=persistent,
        pin_memory=settings.pin_memory,
        timeout=settings.timeout,
        worker_init_fn=_WorkerStart(settings.init, gc.isenabled()),
        multiprocessing_context=settings.context,
        generator=torch.Generator("cpu").manual_seed(key >> 1),  # the default one belongs to the model
    )


def _as_it_is(delivery: Any) -> Any:
    return delivery


@dataclass(frozen=True)
class _WorkerStart:
    """What a worker does first; a class, because spawned workers need it pickled."""

    init: Callable[[int], None] | None
    collects: bool = True  # garbage, as the process does that starts it

    def __call__(self, worker: int) -> None:
        # Before anything else: what was there before the fork is left alone by the garbage collector, whose marks would
        # copy its pages.
        freeze_inherited(self.collects)
        reset_signals()
        threading.Thread(target=_end_with_parent, args=(_parent(),), daemon=True).start()
        info = get_worker_info()
        if info is not None and isinstance(info.dataset, BatchReader):
            # What the user's code finds there is the data set that this worker reads. torch allows no assignment.
            object.__setattr__(info, "dataset", info.dataset.dataset)
        if self.init is not None:
            self.init(worker)


def _parent() -> int:
    """The process that started this worker. The system names another one if that was killed just now."""
    started_by = multiprocessing.parent_process()
    is_direct = started_by is not None and multiprocessing.get_start_method(allow_none=True) != "forkserver"
    return started_by.pid if started_by is not None and is_direct and started_by.pid else os.getppid()


def _end_with_parent(parent: int) -> None:
    """torch's workers look for their parent between batches; one that hangs in a batch or its handing over does not.

    Not by the kernel's signal for a parent's death: that one comes when the *thread* ends that started the workers.
    """
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def _noting(draws: Iterator[Draw], asked: deque[Draw]) -> Iterator[Draw]:
    for draw in draws:
        asked.append(draw)
        yield draw


def _started(pool: DataLoader[Any]) -> Iterator[Any]:
    """torch's iterator, without its handler for the death of children: that one raises in the middle of whatever the
    process does just then, the optimizer's step among it. A death is noticed when the next batch is waited for."""
    is_main = threading.current_thread() is threading.main_thread() and hasattr(signal, "SIGCHLD")
    before = signal.getsignal(signal.SIGCHLD) if is_main else None
    are_running = getattr(pool, "_iterator", None) is not None  # those of the epoch before
    with gc_paused():  # nor in a child before it leaves what is there alone: what is dead may be of a GPU
        deliveries = iter(pool)
    if is_main and before is not None:
        signal.signal(signal.SIGCHLD, before)
    if not are_running:
        keep_queues_from_collector(deliveries)
    return deliveries


def keep_queues_from_collector(deliveries: Any) -> None:
    """Workers are asked to end through queues. Where torch's iterator is part of a reference cycle (of a trainer, or of
    an error's traceback), the garbage collector closes the queues before it finalizes the iterator, which then waits
    five seconds for each of its workers. What ``weakref.finalize`` holds is not garbage yet."""
    kept = [getattr(deliveries, name, None) for name in ("_index_queues", "_worker_result_queue")]
    weakref.finalize(deliveries, list.clear, kept).atexit = False


def _death(error: Exception, asked: deque[Draw]) -> str:
    if isinstance(error, TimeoutError):
        return (
            f"a loader process gave nothing in time ({error}); raise timeout=, or look at what the data set waits for"
        )
    indices = asked[0].indices if asked else []
    batch = f" at samples {', '.join(map(str, indices[:8]))}{', ...' if len(indices) > 8 else ''}" if indices else ""
    return (
        f"loader processes were ended from outside {MOST_DEATHS + 1} times{batch}: killed for memory, out of "
        f"/dev/shm, or crashed in native code ({first_line(error)}); try fewer workers, num_workers=0 shows the reason"
    )
