"""How long kernels run in a stretch of a step, where that is not seen in every step."""

from collections import deque
from statistics import fmean

from brim.engine.shares.sampled_step import SampledStep

REMEMBERED = 5  # measurements of a stretch; batches may differ
ALIKE = 3.0  # times as long on the host, or as short: beyond that it is another step (eager, and now replayed)


class BusyTimes:
    """Measured where the device was behind the host throughout; taken for steps in which it was not."""

    def __init__(self) -> None:
        self._measured: dict[tuple[int, int], deque[tuple[float, float]]] = {}  # (busy, host's) by stretch of how many

    def learn(self, step: SampledStep) -> None:
        """Take in a step that was held back. A stretch that has gaps all the same says how long it is at most."""
        stretches = step.stretches
        for place, stretch in enumerate(stretches):
            known = self._measured.setdefault((len(stretches), place), deque(maxlen=REMEMBERED))
            if known and not _is_alike(known[-1][1], stretch.host_seconds):
                known.clear()
            known.append((stretch.device_seconds, stretch.host_seconds))

    def of(self, step: SampledStep) -> list[float] | None:
        """Of each stretch of a step that was not held back; None where one was never measured."""
        stretches, found = step.stretches, []
        for place, stretch in enumerate(stretches):
            known = self._measured.get((len(stretches), place))
            if stretch.has_no_gaps(was_held=False):
                found.append(stretch.device_seconds)
            elif known and _is_alike(known[-1][1], stretch.host_seconds):
                found.append(fmean(busy for busy, _ in known))
            else:
                return None
        return found


def _is_alike(one: float, other: float) -> bool:
    return one <= ALIKE * other and other <= ALIKE * one
