"""How long an examination should take."""

import time
from collections.abc import Iterator
from contextlib import contextmanager


class TimeLimit:
    """So many seconds from now; what a run of the script takes is learnt from those that were made.

    >>> limit = TimeLimit(60.0)
    >>> limit.has_time_for(6)  # nothing is known yet of what one takes
    True
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._ends = time.monotonic() + seconds
        self._runs = 0
        self._taken = 0.0

    @contextmanager
    def one_run(self) -> Iterator[None]:
        """Around a run of the script that is like those to come."""
        began = time.monotonic()
        yield
        self._runs += 1
        self._taken += time.monotonic() - began

    def has_time_for(self, runs: int) -> bool:
        """Whether so many runs end in time, if each takes what the others took in the mean."""
        expected = runs * self._taken / self._runs if self._runs else 0.0
        return time.monotonic() + expected <= self._ends
