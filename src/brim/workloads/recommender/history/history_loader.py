"""Batches of people whose histories are in two parts: what a model sees, and what it has to name."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from brim.data.randomness.negatives import hash_positions
from brim.data.randomness.order import EpochOrders, batch_bounds, batch_count, stream_key
from brim.errors import ConfigError, DataError
from brim.hardware import choose_device, inventory
from brim.workloads.recommender.history.user_rows import UserRows
from brim.workloads.recommender.interactions import Interactions

HASHES = 2**63  # a hash is below this


class Histories(NamedTuple):
    """A row for each person and a column for each item, as truth values."""

    seen: Tensor
    hidden: Tensor


class HistoryLoader:
    """Batches of :class:`Histories`, made where the model computes.

    Each epoch hides another random part of what everybody watched. Which part is a function of seed, epoch and pair,
    the order one of seed and epoch, so that they are the same on every device and any position can be started from.

    Args:
        train_data: who watched what.
        batch_size: people in a batch.
        hidden: share of the items that are hidden, above 0 and below 1.
        shuffle: another order of people in each epoch.
        device: where batches are made.
        drop_last: leave out the last, smaller batch of an epoch.
        seed: of iterating over it; a trainer brings its own.

    >>> loader = HistoryLoader(Interactions(torch.tensor([0, 0, 1]), torch.tensor([0, 2, 1]), 2, 3), device="cpu")
    >>> next(iter(loader)).seen.shape
    torch.Size([2, 3])
    """

    hands_out_blocks = True  # nothing writes to a batch once it is handed out

    def __init__(
        self,
        train_data: Interactions,
        batch_size: int = 256,
        hidden: float = 0.5,
        shuffle: bool = True,
        device: str | torch.device = "cuda",
        drop_last: bool = False,
        seed: int = 0,
    ) -> None:
        if batch_size < 1:
            raise ConfigError(f"batch_size={batch_size} must be at least 1")
        if not 0 < hidden < 1:
            raise ConfigError(f"hidden={hidden} is the share of a history to hide: above 0 and below 1, as 0.5")
        if len(train_data) == 0:
            raise DataError("the training data has no interactions")
        self.batch_size, self.hidden, self.shuffle = batch_size, hidden, shuffle
        self.drop_last, self.seed = drop_last, seed
        self.device = choose_device(device, inventory()).device
        self.rows = UserRows.of(train_data.to(self.device))
        self.people = torch.nonzero(self.rows.counts).flatten()  # who watched nothing has nothing to hide
        self._epoch = 0
        self._orders = EpochOrders()

    @property
    def samples(self) -> int:
        """The number of people."""
        return len(self.people)

    def __len__(self) -> int:
        return batch_count(len(self.people), self.batch_size, self.drop_last)

    def __iter__(self) -> Iterator[Histories]:
        epoch, self._epoch = self._epoch, self._epoch + 1
        return self.batches(self.seed, epoch)

    def batches(self, seed: int, epoch: int, start: int = 0) -> Iterator[Histories]:
        """The batches of an epoch from position ``start`` on."""
        people = self.people
        if self.shuffle:
            people = people[self._orders.order(len(people), seed, epoch).to(self.device)]
        return self._read(people, stream_key(seed, epoch), start, self.drop_last)

    def in_order(self) -> Iterator[Histories]:
        return self._read(self.people, stream_key(self.seed, 0), 0, drop_last=False)

    def _read(self, people: Tensor, key: int, start: int, drop_last: bool) -> Iterator[Histories]:
        size = self.batch_size
        length = len(people) - len(people) % size if drop_last else len(people)
        for first, stop in batch_bounds(length, size, start):
            yield self._split(people[first:stop], key)

    def _split(self, people: Tensor, key: int) -> Histories:
        pairs = self.rows.pairs_of(people)
        is_hidden = hash_positions(pairs.positions, key) < int(self.hidden * HASHES)
        shape = (len(people), self.rows.n_items)
        seen, hidden = (torch.zeros(shape, dtype=torch.bool, device=self.device) for _ in Histories._fields)
        seen[pairs.rows, pairs.items] = ~is_hidden
        hidden[pairs.rows, pairs.items] = is_hidden
        return Histories(seen, hidden)
