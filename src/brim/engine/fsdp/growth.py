"""Larger slices for a sharded model, where there is room for them on every rank."""

from brim.engine.distributed.ranks import Ranks
from brim.engine.oom.memory_watch import MemoryWatch

SOON, LATER = 2, 64  # steps after a change of size, and from then on, when ranks compare what they have room for
MOST_TRIES = 3  # that fail, before they try no more


class Growth:
    """After a failure slices are half as large, which may be less than there is room for, then or later.

    All ranks look after the same steps, and take what the one with least room has room for, but always less than what
    has failed. After some tries that failed they stay as they are, until a rank that ran out has more room. ``most``:
    what the user asked for, if anything.
    """

    def __init__(self, ranks: Ranks, watch: MemoryWatch, most: int | None) -> None:
        self.ranks = ranks
        self.watch = watch
        self.most = most
        self._steps = 0  # since the size changed
        self._before: int | None = None  # the size before the one that is being tried
        self._has_grown = False
        self._failed: int | None = None  # the smallest size that was too much
        self._tries = 0  # that failed

    def begin(self, size: int | None) -> None:
        """Before a step."""
        self._steps += 1
        if self._looks(size):
            self.watch.begin()

    def end(self, size: int | None, largest: int, share: int) -> int | None:
        """After a step whose largest slice was ``largest`` here: the size to go on with, if it is another one.

        ``share``: the samples of a batch on the rank that has most.
        """
        if self._steps >= SOON:  # one of these was not the odd last batch
            self._before = None
        if size is None or not self._looks(size):
            return None
        if has_more_room := self.watch.has_more_room():
            self.watch.note_room()
        own = self.watch.largest_size(largest) if largest else None
        told: list[tuple[bool, int | None]] = self.ranks.all_gather_object((has_more_room, own))
        if any(more for more, _ in told):
            self._failed, self._tries, self._has_grown = None, 0, False
        sizes = [room for _, room in told if room is not None]
        if self._tries >= MOST_TRIES or len(sizes) < len(told):
            return None
        sizes += [] if self.most is None else [self.most]
        sizes += [] if self._failed is None else [self._failed - 1]
        slices = -(-share // max(1, min(sizes)))
        if slices >= -(-share // size):
            return None
        self._steps, self._before, self._has_grown = 0, size, True
        return -(-share // slices)

    def after_failure(self, largest: int) -> int:
        """The size that this rank proposes, which had no memory for slices of ``largest``."""
        return self._before if self._before is not None and self._before < largest else largest // 2

    def failed(self, size: int) -> None:
        """On all ranks: slices of ``size`` were too much for one of them."""
        self._failed = size if self._failed is None else min(self._failed, size)
        self._tries += self._has_grown
        self._steps, self._before = 0, None

    def _looks(self, size: int | None) -> bool:
        may_grow = size is not None and (self.most is None or size < self.most)
        return may_grow and self._steps > 0 and (self._steps == SOON or self._steps % LATER == 0)
