"""Into how many micro-batches a batch goes: found by trying, remembered, and taken back when there is room again.

A plain decision: it knows nothing of devices. Sizes between which the number of micro-batches is the same differ in
nothing but their remainder, so the search is over numbers of micro-batches and not over sizes.
"""

from dataclasses import dataclass, field

CONFIRMED_AFTER = 2  # good steps before larger micro-batches are tried
MOST_TRIES = 4  # of larger micro-batches that fail, until the room changes


@dataclass
class MicroBatchSearch:
    """Between a number of micro-batches that was seen to run and a smaller one that was seen to run out of memory."""

    batch: int
    number: int = 1  # of micro-batches in a batch
    smallest: int = 1  # samples in a micro-batch: BatchNorm needs two
    good: int | None = None  # the fewest micro-batches that ran
    bad: int = 0  # the most micro-batches that ran out of memory
    _again: bool = field(default=False, repr=False)
    _steps: int = field(default=0, repr=False)
    _tries: int = field(default=0, repr=False)

    @property
    def size(self) -> int:
        """Samples in a micro-batch: as even as they can be."""
        return -(-self.batch // self.number)

    @property
    def is_settled(self) -> bool:
        """Whether no larger micro-batches are going to be tried."""
        return self.good is not None and (self._tries >= MOST_TRIES or self._between(self.good - 1) is None)

    def shrink_after_oom(self) -> bool:
        """Memory ran out: smaller micro-batches; False where they are as small as they can be."""
        if self.number == self.good and not self._again:
            self._again = True  # it ran before: what lay about in pieces has been given back meanwhile
            return True
        if self.is_smallest:
            return False
        if self.good is not None and self.good > self.number:
            self._tries += 1
        self.bad, self._again, self._steps = max(self.bad, self.number), False, 0
        if self.good is not None and self.good > self.number:
            self.number = self.good
        elif self.good is not None:  # it ran once; there is less room now
            self.good, self.number = None, self._slightly_smaller()
        else:
            self.number = self._canonical(min(2 * self.number, self._most))
            if self.number <= self.bad:  # twice as many of the same size: the next smaller size instead
                self.number = min(self._slightly_smaller(), self._most)
        return self.number > self.bad

    def shrink_after_retries(self) -> bool:
        """A step ran, but the allocator had to retry: somewhat smaller micro-batches; False where there are none."""
        if self.is_smallest:
            return False
        self.bad, self._steps, self._tries = max(self.bad, self.number), 0, self._tries + 1
        if self.good is not None and self.good > self.number:
            self.number = self.good
        else:
            self.good, self.number = None, self._slightly_smaller()
        return True

    def note_success(self, largest: int | None = None) -> int | None:
        """A step went well. Returns, every so often, how many micro-batches to try next, where fewer might fit.

        ``largest`` is the size that is expected to fit, where somebody knows.
        """
        self._again = False
        self.good = self.number if self.good is None else min(self.good, self.number)
        self._steps += 1
        if self._steps < CONFIRMED_AFTER or self._tries >= MOST_TRIES:
            return None
        expected = self.good if largest is None else -(-self.batch // max(1, largest))
        # Expectations are careful: where they see no more, what is unknown is halved all the same.
        wanted = self._between(expected if expected < self.good else (self.good + self.bad + 1) // 2)
        if wanted is not None:
            self._steps = 0
        return wanted

    def forget_failures(self) -> None:
        """More memory is free: what ran out of it before may fit now."""
        self.bad, self._tries, self._steps = 0, 0, 0

    def _between(self, number: int) -> int | None:
        """The nearest number to this one that is neither known to run nor to run out, and makes other micro-batches."""
        assert self.good is not None
        for candidate in range(max(number, self.bad + 1), self.good):
            canonical = self._canonical(candidate)
            if self.bad < canonical < self.good:
                return canonical
        return None

    def _canonical(self, number: int) -> int:
        """The fewest micro-batches of the size that this many have."""
        return -(-self.batch // -(-self.batch // number))

    def _slightly_smaller(self) -> int:
        """Micro-batches of about three quarters of the size."""
        return min(-(-self.batch // max(self.smallest, self.size * 3 // 4)), self._most)

    @property
    def is_smallest(self) -> bool:
        """Whether micro-batches cannot be smaller."""
        return self.number >= self._most

    @property
    def _most(self) -> int:
        return self._canonical(max(1, self.batch // self.smallest))
