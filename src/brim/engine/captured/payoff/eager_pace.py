"""How fast eager steps follow each other, and whether the host or the device holds them up."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from statistics import median_low
from typing import Any

from brim.engine.captured.payoff.decision import Pace
from brim.engine.shares.device_events import DeviceEvents

MOST_MARKS = 9  # the first, by which clocks are compared, and the last ones: early steps are slower
LEAST_INTERVALS = 3  # the first of them is a whole step, with whatever it has to load
ONE_CLOCK_SECONDS = 30.0  # for which the clocks of host and device run alike, to some fractions of a millisecond


@dataclass(frozen=True)
class _Mark:
    """The end of a step: when the host had launched it, and the event that the device comes to after it."""

    number: int
    host: float
    event: Any


class EagerPace:
    """Marks the ends of eager steps.

    By how much the device is behind the host at the end of a step is how long it goes on computing without more
    launches, so it computes for at least that share of the time between steps. The two clocks are compared by the mark
    at which the device was least behind, before the first step as a rule; should it have been behind there as well, its
    share is taken for smaller than it is, never for larger.
    """

    def __init__(self, events: DeviceEvents, clock: Callable[[], float] = time.perf_counter) -> None:
        self._events, self._clock = events, clock
        self._marks: list[_Mark] = []
        self._steps = 0

    def begins_step(self) -> None:
        """An eager step is about to be launched."""
        if self._marks and self._clock() - self._marks[0].host > ONE_CLOCK_SECONDS:
            self.forget()
        if not self._marks:
            self._steps += 1  # no interval lies between this mark and one of before
            self._mark()

    def ends_step(self) -> None:
        """It is launched."""
        self._steps += 1
        self._mark()
        if len(self._marks) > MOST_MARKS:
            self._events.give_back(self._marks.pop(1).event)

    def _mark(self) -> None:
        if self._events.is_recordable():
            self._marks.append(_Mark(self._steps, self._clock(), self._events.record()))

    def forget(self) -> None:
        """Begin anew: steps of another kind come between."""
        for mark in self._marks:
            self._events.give_back(mark.event)
        self._marks.clear()

    def read(self, wait: bool = False) -> Pace | None:
        """The pace of the steps that the device is done with; None where these are too few.

        Nothing is waited for, unless ``wait`` asks for the steps that are launched to be over.
        """
        if wait and self._marks:
            self._events.wait_for(self._marks[-1].event)
        past = [mark for mark in self._marks if self._events.is_past(mark.event)]
        device = {mark.number: self._events.seconds(past[0].event, mark.event) for mark in past}
        behind = {mark.number: device[mark.number] - (mark.host - past[0].host) for mark in past}
        steps = [
            (device[two.number] - device[one.number], behind[two.number] - min(behind.values()))
            for one, two in pairwise(past)
            if two.number == one.number + 1
        ]
        steps = [(seconds, lag) for seconds, lag in steps if seconds > 0]
        if len(steps) < LEAST_INTERVALS:
            return None
        busy = median_low([lag / seconds for seconds, lag in steps])
        return Pace(median_low([seconds for seconds, _ in steps]), min(1.0, busy))
