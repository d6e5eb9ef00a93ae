"""How many worker processes read a data set: by measurement, within what the machine has.

None is a possible answer, and often the right one: handing a batch over from another process costs about 0.3 ms a
tensor, so workers help only where reading a batch takes longer than that.
"""

import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any

import torch

from brim.data.reading.shared_room import SharedRoom, in_mb
from brim.hardware import usable_cores
from brim.hardware.host import available_memory, cache_folder, free_shared_memory, open_file_limit, process_memory
from brim.whole_files import written_aside

WITHIN = 0.03  # the smallest count that is this close to the best is taken
HAND_OVER = 0.0003  # seconds a tensor takes from process to process
TUNING_SECONDS = 25.0
HEAVY_TAIL = 2.0  # slowest batches over the usual one: from here on a deeper queue pays


@dataclass(frozen=True)
class BatchCost:
    """What one batch takes to read in one process. ``slowest`` is the 95th percentile."""

    seconds: float
    slowest: float
    bytes: int
    tensors: int

    @property
    def prefetch(self) -> int:
        """Depth absorbs variance, not mean: two batches ahead, four where some take much longer than others."""
        return 4 if self.slowest > HEAVY_TAIL * self.seconds else 2


@dataclass(frozen=True)
class Budget:
    """What the machine has for workers; None where there is no limit."""

    cores: int
    shared_memory: int | None = None
    open_files: int | None = None
    memory: int | None = None
    memory_per_worker: int = 64 << 20

    def most_workers(self, cost: BatchCost, prefetch: int) -> tuple[int, str]:
        """The largest count that every limit allows, and which limit that is."""
        limits = {f"{self.cores} cores": self.cores}
        waiting = max(1, prefetch * cost.bytes)
        if self.shared_memory is not None:
            limits[f"{in_mb(self.shared_memory)} of /dev/shm"] = self.shared_memory // 2 // waiting
        if self.open_files is not None:  # each tensor on its way holds a file descriptor
            limits[f"{self.open_files} open files"] = self.open_files // 2 // max(1, prefetch * cost.tensors)
        if self.memory is not None:
            limits[f"{in_mb(self.memory)} of memory"] = self.memory // 2 // (self.memory_per_worker + waiting)
        reason = min(limits, key=lambda name: limits[name])
        return max(0, limits[reason]), reason


def machine_budget(ranks: int = 1, computes_here: bool = False) -> Budget:
    """What this process may spend on workers, beside its fellow ranks; training on the CPU needs half of the cores."""
    cores = usable_cores() // max(1, ranks)
    shared, memory = free_shared_memory(), available_memory()
    return Budget(
        cores=max(1, cores // 2) if computes_here else max(1, cores),
        shared_memory=None if shared is None else shared // ranks,
        open_files=open_file_limit(),
        memory=None if memory is None else memory // ranks,
        memory_per_worker=max(64 << 20, (process_memory() or 0) // 4),
    )


@dataclass(frozen=True)
class WorkerChoice:
    """What was chosen, why, and the batches per second that were measured for each count."""

    workers: int
    prefetch: int
    reason: str
    measured: dict[int, float]


Rate = Callable[[int, int], float]
"""Batches per second with so many workers and so many batches ahead."""


def choose_workers(
    cost: BatchCost,
    budget: Budget,
    rate: Rate,
    announce: Callable[[], None] = lambda: None,
    clock: Callable[[], float] = time.perf_counter,
) -> WorkerChoice:
    """The smallest count within 3 % of the best, or none where none can pay; announced where it takes measuring."""
    alone, prefetch = 1 / max(cost.seconds, 1e-9), cost.prefetch
    if cost.seconds < 2 * HAND_OVER * cost.tensors:
        why = f"a batch is read in {cost.seconds * 1e3:.2g} ms here, and handing it over from a worker takes as long"
        return WorkerChoice(0, prefetch, why, {0: alone})
    most, limit = budget.most_workers(cost, prefetch)
    if most < 1:
        return WorkerChoice(0, prefetch, f"there is no room for a worker ({limit})", {0: alone})
    announce()
    measured = search_rates(lambda count: rate(count, prefetch), alone, most, clock)
    told = ", ".join(f"{count}: {value:.3g}" for count, value in sorted(measured.items()))
    why = f"this many batches/s were measured by number of workers: {told} (at most {most}: {limit})"
    return WorkerChoice(smallest_near_best(measured), prefetch, why, measured)


def search_rates(
    rate: Callable[[int], float], alone: float, most: int, clock: Callable[[], float] = time.perf_counter
) -> dict[int, float]:
    """Rates by count: the most first, then bisecting for the smallest as good, then the contenders once more."""
    deadline = clock() + TUNING_SECONDS
    measured = {0: alone, most: rate(most)}
    low, high = 0, most
    while high - low > 1 and clock() < deadline:
        middle = (low + high) // 2
        measured[middle] = rate(middle)
        best = max(measured.values())
        if measured[middle] >= (1 - WITHIN) * best:
            high = middle
        else:
            low = middle
    # A busy moment must not decide: the contenders have another try, side by side, and the better one counts.
    for count in (0, *sorted(measured, key=lambda count: -measured[count])[:2]):
        if clock() < deadline:
            measured[count] = max(measured[count], rate(count))
    return measured


def smallest_near_best(measured: dict[int, float]) -> int:
    best = max(measured.values())
    return min(count for count, value in measured.items() if value >= (1 - WITHIN) * best)


def shared_room(count: int, prefetch: int) -> SharedRoom | None:
    """What /dev/shm has free now for so many workers; None where there is no limit."""
    free = free_shared_memory()
    return None if free is None else SharedRoom(count, prefetch, free)


class RememberedChoice:
    """Choices of earlier runs on this machine, by data set."""

    def __init__(self, dataset: Any, samples: int, batch_size: int, cost: BatchCost, cores: int) -> None:
        # The cost only roughly: within a factor of two it is the same data on the same machine.
        about = [round(math.log2(max(cost.seconds, 1e-6))), cost.tensors, round(math.log2(max(1, cost.bytes)))]
        name = f"{type(dataset).__module__}.{type(dataset).__qualname__}"
        what = [name, samples, batch_size, cores, torch.__version__, *about]
        self.file = cache_folder() / f"workers-{sha256(json.dumps(what).encode()).hexdigest()[:16]}.json"

    def recall(self) -> WorkerChoice | None:
        try:
            kept = json.loads(self.file.read_text())
            measured = {int(count): float(value) for count, value in kept["measured"].items()}
            choice = WorkerChoice(int(kept["workers"]), int(kept["prefetch"]), str(kept["reason"]), measured)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError):
            return None
        return choice if 0 <= choice.workers <= 1024 and 1 <= choice.prefetch <= 64 else None

    def keep(self, choice: WorkerChoice) -> None:
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            with written_aside(self.file) as aside:
                aside.write_text(json.dumps(asdict(choice)))
        except OSError:  # a home that cannot be written: measured again next time
            pass
