"""What a batch cost to make, told by whoever made it: workers write into memory that they share with this process."""

import mmap
import struct
import time
from collections.abc import Callable
from dataclasses import astuple, dataclass
from typing import Any

from torch.utils.data import get_worker_info
from torch.utils.data._utils import fetch

LOADERS, WORKERS = 16, 64  # those beyond are not counted
_open = open  # Python's own: the script has another one
FIELDS = 6  # those of LoaderCost


@dataclass(frozen=True)
class LoaderCost:
    """Totals of one loader, over all its workers."""

    batches: float = 0.0
    seconds: float = 0.0
    cpu: float = 0.0  # with a core or in line for one
    collate: float = 0.0
    files: float = 0.0
    running: float = 0.0  # with a core

    def since(self, earlier: "LoaderCost") -> "LoaderCost":
        return LoaderCost(*(getattr(self, n) - getattr(earlier, n) for n in self.__dataclass_fields__))


class BatchCosts:
    """Times the fetching of batches. Each process writes to a place of its own, so that nothing has to be locked."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, LOADERS * WORKERS * FIELDS * 8)
        self._places: dict[int, int] = {}  # of a data set, by its id: worker processes have the same one
        self._opened = 0  # files, by this process

    def install(self) -> None:
        base = fetch._BaseDatasetFetcher
        make, costs = base.__init__, self

        def init(fetcher: Any, dataset: Any, auto_collation: bool, collate_fn: Any, drop_last: bool) -> None:
            make(fetcher, dataset, auto_collation, collate_fn, drop_last)
            fetcher.collate_fn = _TimedCollate(collate_fn)

        base.__init__ = init  # type: ignore[method-assign, assignment]
        for kind in (fetch._MapDatasetFetcher, fetch._IterableDatasetFetcher):
            kind.fetch = costs._timed(kind.fetch)  # type: ignore[method-assign]

    def place(self, dataset: Any) -> int:
        """The number under which the batches of a data set are counted."""
        return self._places.setdefault(id(dataset), 1 + max(self._places.values(), default=-1))

    def share_place(self, dataset: Any, place: int) -> None:
        """Count the batches of a data set with those of another, which it has come in the place of."""
        self._places[id(dataset)] = place

    def count_open(self) -> None:
        """A file was opened, by this process."""
        self._opened += 1

    def total(self, place: int) -> LoaderCost:
        """What the batches of a data set cost so far."""
        if place >= LOADERS:
            return LoaderCost()
        rows = [self._read(place, worker) for worker in range(WORKERS)]
        return LoaderCost(*(sum(column) for column in zip(*rows, strict=True)))

    def _timed(self, original: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        def timed(fetcher: Any, index: Any) -> Any:
            wall, cpu, running = time.perf_counter(), core_seconds(), time.thread_time()
            opened = self._opened
            batch = original(fetcher, index)
            collate = fetcher.collate_fn.last if isinstance(fetcher.collate_fn, _TimedCollate) else 0.0
            self._add(
                self._places.get(id(fetcher.dataset), LOADERS),
                LoaderCost(
                    1.0,
                    time.perf_counter() - wall,
                    core_seconds() - cpu,
                    collate,
                    self._opened - opened,
                    time.thread_time() - running,
                ),
            )
            return batch

        return timed

    def _add(self, place: int, cost: LoaderCost) -> None:
        info = get_worker_info()
        worker = 0 if info is None else 1 + info.id
        if place < LOADERS and worker < WORKERS:
            before = self._read(place, worker)
            sums = (one + other for one, other in zip(before, astuple(cost), strict=True))
            struct.pack_into(f"{FIELDS}d", self._memory, self._offset(place, worker), *sums)

    def _read(self, place: int, worker: int) -> tuple[float, ...]:
        return struct.unpack_from(f"{FIELDS}d", self._memory, self._offset(place, worker))

    @staticmethod
    def _offset(place: int, worker: int) -> int:
        return (place * WORKERS + worker) * FIELDS * 8


def core_seconds() -> float:
    """Seconds in which this thread had a core or waited in line for one: on a busy machine that is not idle waiting."""
    try:
        with _open("/proc/thread-self/schedstat") as file:
            running, in_line, _ = file.read().split()
    except (OSError, ValueError):
        return time.thread_time()
    return (int(running) + int(in_line)) / 1e9


class _TimedCollate:
    def __init__(self, collate: Callable[[Any], Any]) -> None:
        self.collate, self.last = collate, 0.0

    def __call__(self, samples: Any) -> Any:
        start = time.perf_counter()
        try:
            return self.collate(samples)
        finally:
            self.last = time.perf_counter() - start
