"""Interactions laid out by user, so that what any of them watched is found at once."""

from dataclasses import dataclass

import torch
from torch import Tensor

from brim.workloads.recommender.interactions import Interactions


@dataclass(frozen=True)
class Pairs:
    """What some users watched: the row of each pair's user among those asked for, its item, its place among all."""

    rows: Tensor
    items: Tensor
    positions: Tensor


@dataclass(frozen=True)
class UserRows:
    """The items of all users one after another, where each user's begin, and how many they are."""

    items: Tensor
    starts: Tensor
    counts: Tensor
    n_items: int

    @classmethod
    def of(cls, data: Interactions) -> "UserRows":
        """A pair that is there twice counts once."""
        pairs = torch.unique(data.users * data.n_items + data.items)
        counts = torch.bincount(pairs // data.n_items, minlength=data.n_users)
        return cls.laid_out(pairs % data.n_items, counts, data.n_items)

    @classmethod
    def laid_out(cls, items: Tensor, counts: Tensor, n_items: int) -> "UserRows":
        """Of items that lie user after user already, as a model keeps them."""
        counts = counts.long()
        return cls(items.long(), counts.cumsum(0) - counts, counts, n_items)

    def pairs_of(self, users: Tensor) -> Pairs:
        counts = self.counts[users]
        rows = torch.arange(len(users), device=users.device).repeat_interleave(counts)
        begin = self.starts[users] - (counts.cumsum(0) - counts)
        positions = torch.arange(len(rows), device=users.device) + begin[rows]
        return Pairs(rows, self.items[positions], positions)

    def matrix_of(self, users: Tensor, dtype: torch.dtype = torch.bool) -> Tensor:
        """A row for each user, with True (or 1) for each item that they watched."""
        pairs = self.pairs_of(users)
        watched = torch.zeros(len(users), self.n_items, dtype=dtype, device=users.device)
        watched[pairs.rows, pairs.items] = True
        return watched
