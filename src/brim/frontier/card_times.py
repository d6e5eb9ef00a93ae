"""How long a step would take on each card: the work of a job, counted once, at the pace of each card's peaks."""

from collections.abc import Callable
from dataclasses import dataclass, field

from brim.frontier.way import time_between
from brim.hardware.cards import Card
from brim.hardware.peaks import peak_of
from brim.memory.forecast import make_setting
from brim.memory.trace.steps import Job
from brim.speed_up.step_time import step_time
from brim.speed_up.work import Work, count_work

PARTS = 8  # the smaller of the two sizes that are counted is the batch divided by this


@dataclass
class CardTimes:
    """Work is counted once for cards that compute in bfloat16 and once for those that do not, at two sizes each."""

    job_on: Callable[[Card], Job]
    batch_size: int
    accumulation: int = 1
    _counted: dict[bool, tuple[Work, Work]] = field(default_factory=dict)

    def seconds(self, card: Card, micro_batch: int, slices: int) -> float | None:
        """Of an optimizer step; None where no data sheet of the card was read."""
        peak = peak_of(card)
        if peak is None:
            return None
        low, high = self._work(card)
        share = 0.0 if low.samples == high.samples else (micro_batch - low.samples) / (high.samples - low.samples)
        one = time_between(step_time(low, peak), step_time(high, peak), share)
        return one.times(slices * self.accumulation).seconds

    def _work(self, card: Card) -> tuple[Work, Work]:
        kind = card.is_capable_of_bf16
        if kind not in self._counted:
            job, setting = self.job_on(card), make_setting(card, None, None)
            sizes = (max(2, self.batch_size // PARTS), max(2, self.batch_size))
            low, high = (count_work(job, size, card, setting.runtime)[1] for size in sizes)
            self._counted[kind] = (low, high)
        return self._counted[kind]
