"""Negative items for implicit feedback: never a known positive, and a function of (seed, epoch, position) alone.

The r-th item that a user has *not* interacted with is found by arithmetic, so there is no rejection loop, no branch and
no state: the same numbers come out on the CPU, on a GPU and inside a captured graph.

With a user's positives sorted as p_0 < p_1 < ..., the value p_j - j is how many non-positives lie below p_j. The r-th
non-positive therefore lies above exactly those positives with p_j - j <= r, and equals r plus their number. Keys
``user * (n_items + 1) + (p_j - j)`` are sorted over all users at once, so one binary search answers a whole batch.
"""

import torch
from torch import Tensor

from brim.data.randomness.order import GOLDEN, MIX_1, MIX_2
from brim.errors import DataError


def _signed(word: int) -> int:
    """A 64-bit word as the signed integer with the same bits: torch multiplies int64 modulo 2**64."""
    return word - (1 << 64) if word >= 1 << 63 else word


def _logical_shift(words: Tensor, bits: int) -> Tensor:
    return (words >> bits) & ((1 << (64 - bits)) - 1)


def hash_positions(positions: Tensor, key: int) -> Tensor:
    """splitmix64 of every position, as 63-bit non-negative integers."""
    words = positions * _signed(GOLDEN) + _signed(key)
    words = (words ^ _logical_shift(words, 30)) * _signed(MIX_1)
    words = (words ^ _logical_shift(words, 27)) * _signed(MIX_2)
    return _logical_shift(words ^ _logical_shift(words, 31), 1)


class NegativeSampler:
    """Draws, for each (user, position), one item that the user has no known interaction with.

    >>> sampler = NegativeSampler(torch.tensor([0, 0]), torch.tensor([0, 2]), n_users=1, n_items=4)
    >>> set(sampler(torch.zeros(100, dtype=torch.long), torch.arange(100), key=7).tolist())
    {1, 3}
    """

    def __init__(self, users: Tensor, items: Tensor, n_users: int, n_items: int) -> None:
        pairs = torch.unique(users.long() * n_items + items)  # sorted by user, then item; repeated pairs count once
        owners = pairs // n_items
        counts = torch.bincount(owners, minlength=n_users)
        starts = counts.cumsum(0) - counts
        rank = torch.arange(len(pairs), device=pairs.device) - starts[owners]
        full = torch.nonzero(counts >= n_items)
        if len(full):
            raise DataError(
                f"user {int(full[0])} has interacted with all {n_items} items, so no negative exists for them; "
                "remove this user or set min_rating= so that some items count as not liked"
            )
        self.n_items = n_items
        self.starts = starts
        self.free = n_items - counts
        self.keys = owners * (n_items + 1) + pairs % n_items - rank

    def __call__(self, users: Tensor, positions: Tensor, key: int) -> Tensor:
        """Items for ``users`` at ``positions`` of the epoch whose ``order.stream_key`` is ``key``."""
        nth = hash_positions(positions, key) % self.free[users]
        below = torch.searchsorted(self.keys, users.long() * (self.n_items + 1) + nth, right=True) - self.starts[users]
        return nth + below
