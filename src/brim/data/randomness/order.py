"""The order of samples, and positions in it, as pure functions.

The order of an epoch depends on the seed and the epoch and on nothing else: not on the number of ranks, not on workers,
not on the micro-batch. A position in it is one integer, so resuming anywhere is arithmetic and replays nothing.
"""

import threading
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

CPU = torch.device("cpu")
WORTH_A_THREAD = 100_000  # samples
GOLDEN = 0x9E3779B97F4A7C15  # 2**64 / golden ratio: splitmix64's increment
MIX_1 = 0xBF58476D1CE4E5B9
MIX_2 = 0x94D049BB133111EB
WORD = (1 << 64) - 1


def mix64(word: int) -> int:
    """splitmix64's finaliser: every bit of the input moves about half the bits of the output."""
    word &= WORD
    word = ((word ^ (word >> 30)) * MIX_1) & WORD
    word = ((word ^ (word >> 27)) * MIX_2) & WORD
    return word ^ (word >> 31)


def stream_key(seed: int, epoch: int) -> int:
    """One 64-bit key for everything that is drawn for an epoch. Neighbouring seeds and epochs share nothing."""
    return mix64(mix64(seed + GOLDEN) + epoch * GOLDEN)


def epoch_permutation(samples: int, seed: int, epoch: int) -> Tensor:
    """The order in which an epoch visits samples 0 to ``samples`` - 1, made on the CPU whatever the device is."""
    generator = torch.Generator("cpu").manual_seed(stream_key(seed, epoch) >> 1)
    return torch.randperm(samples, generator=generator, device="cpu")


class EpochOrders:
    """The orders of a source's epochs, the next one made in another thread meanwhile: a million samples take 20 ms."""

    def __init__(self) -> None:
        self._next: tuple[tuple[int, int, int], threading.Thread, list[Tensor]] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return EpochOrders, ()  # threads stay in their process

    def order(self, samples: int, seed: int, epoch: int) -> Tensor:
        """What :func:`epoch_permutation` gives."""
        waiting, self._next = self._next, None
        made: list[Tensor] = []
        if waiting is not None and waiting[0] == (samples, seed, epoch):
            waiting[1].join()
            made = waiting[2]  # empty where it has failed, for want of memory
        order = made[0] if made else epoch_permutation(samples, seed, epoch)
        if samples >= WORTH_A_THREAD:
            self._start(samples, seed, epoch + 1)
        return order

    def _start(self, samples: int, seed: int, epoch: int) -> None:
        made: list[Tensor] = []
        thread = threading.Thread(target=lambda: made.append(epoch_permutation(samples, seed, epoch)), daemon=True)
        self._next = (samples, seed, epoch), thread, made
        thread.start()


def batch_bounds(samples: int, batch_size: int, start: int = 0, drop_last: bool = False) -> Iterator[tuple[int, int]]:
    """First and one-past-last position of every batch from position ``start`` on.

    >>> list(batch_bounds(10, 4, start=4))
    [(4, 8), (8, 10)]
    """
    end = samples - samples % batch_size if drop_last else samples
    for first in range(start, end, batch_size):
        yield first, min(first + batch_size, end)


def rows_of(order: Tensor | None, bounds: list[tuple[int, int]], device: torch.device = CPU) -> Tensor:
    """The samples at the positions between ``bounds``, one batch after the other, where the order is.

    >>> rows_of(torch.tensor([3, 1, 0, 2]), [(0, 1), (2, 4)]).tolist()
    [3, 0, 2]
    """
    whole = bounds[-1][1] - bounds[0][0] == sum(stop - first for first, stop in bounds)
    spans = [(bounds[0][0], bounds[-1][1])] if whole else bounds
    parts = [torch.arange(first, stop, device=device) if order is None else order[first:stop] for first, stop in spans]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def batch_count(samples: int, batch_size: int, drop_last: bool = False) -> int:
    """How many batches an epoch has."""
    return samples // batch_size if drop_last else -(-samples // batch_size)


def rank_bounds(start: int, stop: int, rank: int, world: int) -> tuple[int, int]:
    """One rank's share of positions ``start`` to ``stop``: contiguous, and sizes differ by at most one.

    >>> [rank_bounds(0, 10, rank, 4) for rank in range(4)]
    [(0, 2), (2, 5), (5, 7), (7, 10)]
    """
    length = stop - start
    return start + length * rank // world, start + length * (rank + 1) // world


def even_bounds(length: int, most: int | None) -> list[tuple[int, int]]:
    """The fewest slices of at most ``most`` samples, whose sizes differ by at most one; ``None`` leaves it whole.

    >>> even_bounds(10, 4)
    [(0, 3), (3, 6), (6, 10)]
    """
    slices = 1 if most is None else -(-length // most)
    return [rank_bounds(0, length, number, slices) for number in range(slices)]
