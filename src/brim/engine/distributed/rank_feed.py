"""One rank's share of every batch."""

from collections import deque
from collections.abc import Iterator

from brim.data import Batch, Feed, Loader, batch_length, slice_batch
from brim.data.randomness.order import batch_bounds, rank_bounds
from brim.engine.distributed.collated_parts import warning_of_collating
from brim.engine.distributed.ranks import Ranks
from brim.engine.distributed.same_batches import Tell, check_same_data, same_on_all_ranks


class RankFeed:
    """The batches of a feed, cut to this rank's share, with the number of samples that all ranks have together.

    The order of samples is a function of seed and epoch, never of the number of ranks: a batch is the same batch, and a
    position the same position, whoever computes which part of it.
    """

    def __init__(self, feed: Feed, ranks: Ranks) -> None:
        self.feed = feed
        self.ranks = ranks
        self._lengths: deque[int] = deque()

    def compared(self, seed: int, epoch: int, start: int, is_first: bool, warn: Tell) -> Iterator[Batch]:
        """The batches of an epoch, once it is known that all ranks read the same; all ranks ask at the same time.

        ``is_first``: whether it is the first epoch of the run, where more is compared.
        """
        if isinstance(self.feed, Loader) and self.feed.samples is not None:
            if is_first:
                check_same_data(self.feed, self.ranks, "train_data", warn)
                if self.ranks.is_first and (told := warning_of_collating(self.feed)) is not None:
                    warn(told)
            return self.batches(seed, epoch, start)
        self._lengths.clear()
        whole = self.feed.batches(seed, epoch, start)
        return self._cut(same_on_all_ranks(whole, self.ranks, "train_data", 2 if is_first else 1, warn))

    def batches(self, seed: int, epoch: int, start: int = 0) -> Iterator[Batch]:
        self._lengths.clear()
        if isinstance(self.feed, Loader) and self.feed.samples is not None:
            # First the batches: asking for them looks whether the data has grown.
            shares = self.feed.batches(seed, epoch, start, self.ranks.rank, self.ranks.world)
            bounds = batch_bounds(self.feed.samples, self.feed.batch_size, start, self.feed.drop_last)
            return self._of_loader(bounds, shares)
        return self._cut(self.feed.batches(seed, epoch, start))

    def take_length(self) -> int:
        """How many samples all ranks together have in the next batch that was not asked about."""
        return self._lengths.popleft()

    def _of_loader(self, bounds: Iterator[tuple[int, int]], shares: Iterator[Batch]) -> Iterator[Batch]:
        for (first, stop), share in zip(bounds, shares, strict=True):
            self._lengths.append(stop - first)
            yield share

    def _cut(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        for batch in batches:
            length = batch_length(batch)
            self._lengths.append(length)
            yield self._share(batch, length)

    def _share(self, batch: Batch, length: int) -> Batch:
        return slice_batch(batch, *rank_bounds(0, length, self.ranks.rank, self.ranks.world))
