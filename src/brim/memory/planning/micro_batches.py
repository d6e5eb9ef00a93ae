"""A batch that does not fit at once, in slices that do."""

from brim.memory.planning.family import fits
from brim.memory.planning.largest import FIRST, Search
from brim.memory.planning.window import batch_tensors, sliced_family_of
from brim.memory.trace.trace import Trace

MOST_TRIES = 7
STANDING = (
    "parameters",
    "buffers",
    "gradients",
    "optimizer",
    "average",
    "batch",
)  # what does not get smaller with slices


class MicroBatches:
    """Micro-batches of equal size, beside the gradients of those before them and the whole batch.

    ``whole`` is the search that found out that the batch does not fit at once.
    """

    def __init__(self, whole: Search, batch_size: int) -> None:
        family = whole.family.sliced.get(batch_size)
        if family is None:
            window = batch_tensors(whole.family.trace(batch_size))
            family = whole.family.sliced[batch_size] = sliced_family_of(whole.job, whole.setting, window)
        self.batch_size = batch_size
        self._whole = whole
        self._search = Search(whole.job, whole.setting, whole.limit, family)

    def leave_room(self) -> bool:
        """Whether the model, its state and the batches fit, without which no slice does: seen without a new trace."""
        trace = self._whole.family.trace(self.batch_size)
        standing = [(number, size) for number, size in trace.events if trace.storages[number].kind in STANDING]
        return fits(standing, self._whole.usable, self._whole.setting.expandable)

    def trace(self, micro_batch: int) -> Trace:
        return self._search.family.trace(micro_batch)

    def fits(self, micro_batch: int) -> bool:
        return self._search.fits(micro_batch)

    def fewest(self, at_most: int) -> int | None:
        """The size of the fewest slices of at most so many samples that fit, or None where none do."""
        slices = -(-self.batch_size // at_most)
        for _ in range(MOST_TRIES):
            micro_batch = -(-self.batch_size // slices)
            if self.fits(micro_batch):
                return micro_batch
            smaller = self._smaller(micro_batch)
            if smaller == 0:
                break
            slices = max(slices + 1, -(-self.batch_size // smaller))
        return None

    def _smaller(self, micro_batch: int) -> int:
        """What may fit where this does not: by the line between it and a small slice, or half of it without one."""
        if micro_batch <= FIRST:
            return micro_batch - 1
        by_line = self._search.beyond(FIRST, micro_batch, 0, micro_batch)
        return micro_batch // 2 if by_line is None else min(by_line, micro_batch - 1)
