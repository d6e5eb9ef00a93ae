"""Measuring what reading costs: one batch in this process, and many with some workers."""

import copy
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from brim.data.batch import Batch, map_leaves
from brim.data.order import batch_bounds
from brim.data.reading import BatchReader, Draw, Failure
from brim.data.samples import WorkerDraws, WorkerSettings, draws_of, worker_pool
from brim.data.workers import BatchCost, Rate

PROBE_SECONDS = 2.0
LONGEST_PROBE_BATCH = 0.25  # seconds: where a batch takes longer, fewer samples of it are tried


def probe_twin(data: Any) -> Any:
    """A shallow copy to try things on: files that the data set opens when first asked stay out of the original, whose
    workers must open their own."""
    try:
        return copy.copy(data)
    except Exception:  # a class that cannot be copied
        return data


def tensor_bytes(batch: Batch) -> tuple[int, int]:
    """Bytes and number of the tensors of a batch."""
    sizes: list[int] = []
    map_leaves(
        lambda leaf: sizes.append(leaf.numel() * leaf.element_size()) if isinstance(leaf, Tensor) else None, batch
    )
    return sum(sizes), len(sizes)


def quick_look(reader: BatchReader, samples: int) -> BatchCost | None:
    """What one sample costs, from four of them; None where they fail."""
    times = []
    for index in {0, samples // 3, samples // 2, samples - 1}:
        began = time.perf_counter()
        delivery = reader.__getitems__(Draw([index], index))
        if isinstance(delivery, Failure):
            return None
        times.append(time.perf_counter() - began)
        volume, tensors = tensor_bytes(delivery.batch)
    return BatchCost(min(times), max(times), volume, tensors)


def batch_cost(reader: BatchReader, samples: int, batch_size: int) -> tuple[BatchCost, int] | None:
    """What a batch costs, and how many samples a batch has that is worth trying; None where samples fail."""
    order = torch.randperm(samples, generator=torch.Generator("cpu").manual_seed(0))
    size, read, deadline = min(2, batch_size, samples), 0, time.perf_counter() + PROBE_SECONDS
    seconds: list[float] = []
    while not seconds or (len(seconds) < 9 and time.perf_counter() < deadline):
        indices = order[torch.arange(read, read + size) % samples].tolist()
        began = time.perf_counter()
        delivery = reader.__getitems__(Draw(indices, read))
        if isinstance(delivery, Failure):
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
            return _rate_here(reader, samples, probe_size) * probe_size / batch_size
        pool = worker_pool(
            reader,
            WorkerDraws(_endless(samples, probe_size)),
            replace(settings, count=count, prefetch=prefetch),
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


def _rate_here(reader: BatchReader, samples: int, size: int) -> float:
    """Batches per second in this process."""
    batches, began = 0, time.perf_counter()
    for draw in _endless(samples, size):
        reader.__getitems__(draw)
        batches, elapsed = batches + 1, time.perf_counter() - began
        if elapsed > 1.0:
            break
    return batches / elapsed


def _endless(samples: int, size: int) -> Iterator[Draw]:
    epoch = 0
    while True:
        order = torch.randperm(samples, generator=torch.Generator("cpu").manual_seed(epoch))
        yield from draws_of(order, batch_bounds(samples, min(size, samples)), epoch)
        epoch += 1
