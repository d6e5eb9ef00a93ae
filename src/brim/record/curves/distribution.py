"""How often a positive number was how large, in narrow bins: what a histogram and a median need."""

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass

WIDTH = math.log(1.002)  # of a bin: two values in one differ by 0.2 % at most
SMALLEST, LARGEST = 1e-200, 1e200  # beyond them sums and quotients are no numbers any more
NAMED = 20  # largest values of which the step is kept


@dataclass(frozen=True, slots=True, order=True)
class Largest:
    """One of the largest values: that of the ``steps`` steps up to ``step``."""

    value: float
    step: int
    steps: int


@dataclass(slots=True)
class Bin:
    """Values that are nearly equal: how many steps had one, and their sum."""

    steps: int = 0
    total: float = 0.0

    @property
    def mean(self) -> float:
        return self.total / self.steps


class Distribution:
    """Counts values by their size; each stands for a number of steps."""

    def __init__(self) -> None:
        self._bins: dict[int, Bin] = {}
        self._largest: list[Largest] = []  # a heap, the least of them first
        self.values = 0  # how many were counted

    def add(self, value: float, step: int, steps: int) -> None:
        """``value`` of the ``steps`` steps up to ``step``; one that is not above nought is passed over."""
        if not SMALLEST < value < LARGEST or steps <= 0:
            return
        self.values += 1
        into = self._bins.setdefault(math.floor(math.log(value) / WIDTH), Bin())
        into.steps += steps
        into.total += value * steps
        if len(self._largest) < NAMED:
            heapq.heappush(self._largest, Largest(value, step, steps))
        elif value > self._largest[0].value:
            heapq.heapreplace(self._largest, Largest(value, step, steps))

    @property
    def steps(self) -> int:
        """How many steps were counted."""
        return sum(one.steps for one in self._bins.values())

    @property
    def median(self) -> float | None:
        """Over steps; None where there are none.

        >>> spread = Distribution()
        >>> for value, step, steps in ((90.0, 1, 1), (80.0, 2, 1), (5.0, 50, 48), (6.0, 100, 50)):
        ...     spread.add(value, step, steps)
        >>> spread.median
        6.0
        """
        return self.quantile(0.5)

    def quantile(self, share: float) -> float | None:
        """The value that this share of the steps does not exceed, to 0.2 %; None where there are none."""
        wanted, passed = share * self.steps, 0
        for _, one in sorted(self._bins.items()):
            passed += one.steps
            if passed >= wanted:
                return one.mean
        return None

    @property
    def least(self) -> float | None:
        return min((one.mean for one in self._bins.values()), default=None)

    @property
    def largest(self) -> list[Largest]:
        """The largest values, the largest first."""
        return sorted(self._largest, reverse=True)

    def above(self, limit: float) -> int:
        """How many steps had a larger value."""
        return sum(one.steps for one in self._bins.values() if one.mean > limit)

    def histogram(self, edges: Sequence[float]) -> list[int]:
        """Steps between each edge and the next one; equal spans. Values beyond the ends are left out.

        >>> spread = Distribution()
        >>> spread.add(1.5, 10, 10), spread.add(9.0, 12, 2)
        (None, None)
        >>> spread.histogram([1.0, 2.0, 3.0])
        [10, 0]
        """
        counts = [0] * (len(edges) - 1)
        span = (edges[-1] - edges[0]) / len(counts)
        for one in self._bins.values():
            if edges[0] <= one.mean <= edges[-1]:
                counts[min(len(counts) - 1, int((one.mean - edges[0]) / span))] += one.steps
        return counts
