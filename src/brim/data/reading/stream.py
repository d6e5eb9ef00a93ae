"""Samples that come one after the other and cannot be asked for by number: an IterableDataset."""

import time
from collections.abc import Iterator
from itertools import islice
from typing import Any

from torch.utils.data import IterableDataset, default_collate

from brim.data.batches.batch import Batch, slice_batch
from brim.data.randomness.order import GOLDEN, mix64, rank_bounds
from brim.data.randomness.seeding import Seeding
from brim.data.reading.one_batch import BatchReader, Collate
from brim.data.times import FeedTimes
from brim.errors import DataError


class StreamSource:
    """Batches of a stream, read in this process. A later position is reached by reading up to it."""

    def __init__(self, data: IterableDataset[Any], collate: Collate | None, times: FeedTimes) -> None:
        self.data = data
        self.times = times
        self._seeding = Seeding()
        self._reader = BatchReader(data, collate or default_collate)

    def batches(
        self, batch_size: int, key: int, epoch: int, start: int, drop_last: bool, rank: int, world: int
    ) -> Iterator[Batch]:
        """The batches of one pass; each rank reads everything and keeps its share of every batch."""
        position = 0
        with self._seeding.draw_from(key):
            samples = iter(self.data)
        while True:
            size = min(batch_size, start - position) if position < start else batch_size
            with self._seeding.draw_from(mix64(key + position * GOLDEN)):
                taken = self._take(samples, size, position)
                if not taken or (drop_last and len(taken) < size):
                    return
                wanted = position >= start
                first, stop = rank_bounds(0, len(taken), rank, world)
                batch = self._share(taken, position, first, stop) if wanted else None
            position += len(taken)
            if wanted:
                yield batch

    def _share(self, taken: list[Any], position: int, first: int, stop: int) -> Batch:
        """One rank's samples of a batch, put together; none where there are fewer samples than ranks."""
        began, numbers = time.perf_counter(), list(range(position + first, position + stop))
        if numbers:
            batch = self._reader.put_together(numbers, taken[first:stop])
        else:
            batch = slice_batch(self._reader.put_together([position], taken[:1]), 0, 0)
        self.times.collate += time.perf_counter() - began
        return batch

    def _take(self, samples: Iterator[Any], size: int, position: int) -> list[Any]:
        began = time.perf_counter()
        try:
            taken = list(islice(samples, size))
        except Exception as error:
            raise DataError(
                f"a sample after number {position} of {type(self.data).__name__} cannot be read: "
                f"{type(error).__name__}: {error}"
            ) from error
        self.times.fetch += time.perf_counter() - began
        return taken
