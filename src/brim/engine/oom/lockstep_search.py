"""The micro-batch size of ranks that compute in lockstep: the same on all, and no more than one of them has room for.

A plain decision, as :mod:`brim.engine.oom.micro_batch_search` is for a rank by itself: it knows nothing of devices, and
all ranks come to the same by what they have told each other. A failure costs all of them a new copy of the model, so
sizes are tried more sparingly here.
"""

from collections.abc import Sequence
from typing import NamedTuple

from brim.engine.oom.halved_size import halved_size

SOON, LATER = 2, 64  # steps after a change of size, and from then on, when ranks compare what they have room for
MOST_TRIES = 3  # that fail, before they try no more


class Room(NamedTuple):
    """What a rank says: how many samples it has room for, where it knows, and whether that is clearly more."""

    has_more: bool
    size: int | None


class LockstepSearch:
    """After a failure micro-batches are half as large, which may be less than there is room for, then or later.

    All ranks look after the same steps, and take what the one with least room has room for, but always less than what
    has failed. After some tries that failed they stay as they are, until a rank that ran out has more room. ``most``:
    what the user asked for, if anything.
    """

    def __init__(self, most: int | None) -> None:
        self.most = most
        self._steps = 0  # since the size changed
        self._before: int | None = None  # the size before the one that is being tried
        self._has_grown = False
        self._failed: int | None = None  # the smallest size that was too much
        self._tries = 0  # that failed

    def begin(self) -> None:
        """Before a step."""
        self._steps += 1

    def is_due(self, size: int | None) -> bool:
        """Whether ranks compare after this step, which is made with ``size``, what they have room for."""
        may_grow = size is not None and (self.most is None or size < self.most)
        return may_grow and self._steps > 0 and (self._steps == SOON or self._steps % LATER == 0)

    def note_success(self) -> None:
        """A step went well."""
        if self._steps >= SOON:  # one of these was not the odd last batch
            self._before = None

    def larger(self, size: int, rooms: Sequence[Room], share: int) -> int | None:
        """The size to go on with, by what all ranks say, if it is larger than ``size``.

        ``share``: the samples of a batch on the rank that has most.
        """
        if any(room.has_more for room in rooms):
            self._failed, self._tries, self._has_grown = None, 0, False
        sizes = [room.size for room in rooms if room.size is not None]
        if self._tries >= MOST_TRIES or len(sizes) < len(rooms):
            return None
        sizes += [] if self.most is None else [self.most]
        sizes += [] if self._failed is None else [self._failed - 1]
        number = -(-share // max(1, min(sizes)))
        if number >= -(-share // size):
            return None
        self._steps, self._before, self._has_grown = 0, size, True
        return -(-share // number)

    def after_failure(self, largest: int) -> int:
        """The size that a rank proposes which had no memory for micro-batches of ``largest``."""
        return self._before if self._before is not None and self._before < largest else halved_size(largest)

    def note_oom(self, size: int) -> None:
        """Micro-batches of ``size`` were too much for one of the ranks; noted on all of them."""
        self._failed = size if self._failed is None else min(self._failed, size)
        self._tries += self._has_grown
        self._steps, self._before = 0, None
