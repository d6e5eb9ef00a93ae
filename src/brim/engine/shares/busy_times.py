"""How long kernels run in a stretch of a step, where that is not seen in every step."""

from collections import deque
from dataclasses import dataclass
from statistics import fmean

from brim.engine.shares.sampled_step import SampledStep

REMEMBERED = 5  # measurements of a stretch; batches may differ
ALIKE = 3.0  # times as long on the host, or as short: beyond that it is another step (eager, and now replayed)


@dataclass(frozen=True)
class _Measured:
    """Seconds of one stretch. ``is_bound``: it had gaps though the device was held back, and takes so long at most."""

    busy: float
    host: float
    is_bound: bool


class BusyTimes:
    """Measured where the device was behind the host throughout; taken for steps in which it was not."""

    def __init__(self) -> None:
        self._measured: dict[tuple[int, int], deque[_Measured]] = {}  # by the stretch's place among how many

    def learn(self, step: SampledStep) -> None:
        """Take in a step that was held back."""
        stretches = step.stretches
        for place, stretch in enumerate(stretches):
            known = self._measured.setdefault((len(stretches), place), deque(maxlen=REMEMBERED))
            is_bound = not stretch.has_no_gaps(was_held=True)
            if known and not _is_alike(known[-1].host, stretch.host_seconds):
                known.clear()
            if known and is_bound and not known[-1].is_bound:
                continue
            if known and known[-1].is_bound and not is_bound:
                known.clear()
            known.append(_Measured(stretch.device_seconds, stretch.host_seconds, is_bound))

    def of(self, step: SampledStep) -> list[float] | None:
        """Of each stretch of a step that was not held back; None where one was never measured."""
        stretches, found = step.stretches, []
        for place, stretch in enumerate(stretches):
            known = self._measured.get((len(stretches), place))
            if stretch.has_no_gaps(was_held=False):
                found.append(stretch.device_seconds)
            elif known and _is_alike(known[-1].host, stretch.host_seconds):
                found.append(fmean(each.busy for each in known))
            else:
                return None
        return found


def _is_alike(one: float, other: float) -> bool:
    return one <= ALIKE * other and other <= ALIKE * one
