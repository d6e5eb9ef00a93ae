"""Into how many slices a batch goes: found by trying, remembered, and taken back when there is room again.

A plain decision: it knows nothing of devices. Sizes between which the number of slices is the same differ in nothing
but their remainder, so the search is over numbers of slices and not over sizes.
"""

from dataclasses import dataclass, field

CONFIRMED_AFTER = 2  # good steps before larger slices are tried
MOST_TRIES = 4  # of larger slices that fail, until the room changes


@dataclass
class MicroBatchSearch:
    """Between a number of slices that was seen to run and a smaller one that was seen to run out of memory."""

    batch: int
    slices: int = 1
    smallest: int = 1  # samples in a slice: BatchNorm needs two
    good: int | None = None  # the fewest slices that ran
    bad: int = 0  # the most slices that ran out of memory
    _again: bool = field(default=False, repr=False)
    _steps: int = field(default=0, repr=False)
    _tries: int = field(default=0, repr=False)

    @property
    def size(self) -> int:
        """Samples in a slice: as even as they can be."""
        return -(-self.batch // self.slices)

    @property
    def is_settled(self) -> bool:
        """Whether no larger slices are going to be tried."""
        return self.good is not None and (self._tries >= MOST_TRIES or self._between(self.good - 1) is None)

    def failed(self) -> bool:
        """Memory ran out: another try; False where slices are as small as they can be."""
        if self.slices == self.good and not self._again:
            self._again = True  # it ran before: what lay about in pieces has been given back meanwhile
            return True
        if self.is_smallest:
            return False
        if self.good is not None and self.good > self.slices:
            self._tries += 1
        self.bad, self._again, self._steps = max(self.bad, self.slices), False, 0
        if self.good is not None and self.good > self.slices:
            self.slices = self.good
        elif self.good is not None:  # it ran once; there is less room now
            self.good, self.slices = None, self._notch_smaller()
        else:
            self.slices = self._canonical(min(2 * self.slices, self._most_slices))
            if self.slices <= self.bad:  # twice as many of the same size: the next smaller size instead
                self.slices = min(self._notch_smaller(), self._most_slices)
        return self.slices > self.bad

    def struggled(self) -> bool:
        """A step ran, with the allocator at its limit: somewhat smaller slices; False where there are none."""
        if self.is_smallest:
            return False
        self.bad, self._steps, self._tries = max(self.bad, self.slices), 0, self._tries + 1
        if self.good is not None and self.good > self.slices:
            self.slices = self.good
        else:
            self.good, self.slices = None, self._notch_smaller()
        return True

    def ran(self, largest: int | None = None) -> int | None:
        """A step went well. Every so often: how many slices to try next, where fewer might run too.

        ``largest`` is the size that is expected to fit, where somebody knows.
        """
        self._again = False
        self.good = self.slices if self.good is None else min(self.good, self.slices)
        self._steps += 1
        if self._steps < CONFIRMED_AFTER or self._tries >= MOST_TRIES:
            return None
        expected = self.good if largest is None else -(-self.batch // max(1, largest))
        # Expectations are careful: where they see no more, what is unknown is halved all the same.
        wanted = self._between(expected if expected < self.good else (self.good + self.bad + 1) // 2)
        if wanted is not None:
            self._steps = 0
        return wanted

    def there_is_room(self) -> None:
        """What ran out of memory before may run now."""
        self.bad, self._tries, self._steps = 0, 0, 0

    def _between(self, slices: int) -> int | None:
        """The nearest number to this one that is neither known to run nor known to run out, and makes other slices."""
        assert self.good is not None
        for candidate in range(max(slices, self.bad + 1), self.good):
            canonical = self._canonical(candidate)
            if self.bad < canonical < self.good:
                return canonical
        return None

    def _canonical(self, slices: int) -> int:
        """The fewest slices of the size that this many have."""
        return -(-self.batch // -(-self.batch // slices))

    def _notch_smaller(self) -> int:
        """Slices of about three quarters of the size."""
        return min(-(-self.batch // max(self.smallest, self.size * 3 // 4)), self._most_slices)

    @property
    def is_smallest(self) -> bool:
        """Whether slices cannot be smaller."""
        return self.slices >= self._most_slices

    @property
    def _most_slices(self) -> int:
        return self._canonical(max(1, self.batch // self.smallest))
