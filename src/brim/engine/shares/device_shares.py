"""Shares on a GPU, by events in its stream, of some of the steps."""

import random
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from brim.engine.shares.busy_times import BusyTimes
from brim.engine.shares.device_events import DeviceEvents
from brim.engine.shares.sampled_step import Cut, Mark, SampledStep, Wait, on_one_clock, parts_of
from brim.engine.shares.step_parts import StepParts
from brim.engine.shares.tensor_reads import watched_reads
from brim.intervals import Interval

# A sample costs the host some 20 us a mark, with what follows from it: so many seconds lie between samples for each of
# their marks, and every step is looked at where steps take longer.
SECONDS_A_MARK = 0.01
MOST_PENDING = 16  # samples that the device has not come to, or that cannot be told apart yet
MOST_WAITS, MOST_CUTS = 64, 12  # in one step
# The device is held back for as long as the host needs for a stretch, which costs the run as much at most. A CUDA
# stream takes some 1,000 kernels ahead, which are launched in about as long as MOST_HELD.
HOLD_SPARE, HOLD_FACTOR, MOST_HELD = 50e-6, 1.2, 0.01
HOLD_EVERY = 1000  # times as long as it was held
# Sooner: until so many have told something, and where nothing is known of a step.
QUICK_LEARNED, QUICK_HOLD_EVERY = 5, 50
MOST_QUICK = 20  # of them in a run, whose steps may all differ


@dataclass(frozen=True)
class _EventMark:
    host: float
    event: Any


@dataclass
class _Sample:
    """A step that is being looked at. ``holds``: seconds that the device is held back before each stretch."""

    begin: _EventMark
    holds: tuple[float, ...]
    asked: float | None = None
    fed: _EventMark | None = None
    launching: _EventMark | None = None
    end: _EventMark | None = None
    waits: list[tuple[_EventMark, _EventMark, _EventMark]] = field(default_factory=list)
    cuts: list[tuple[_EventMark, _EventMark]] = field(default_factory=list)
    copies: tuple[tuple[Any, Any], ...] = ()

    @property
    def marks(self) -> list[_EventMark]:
        ends = [mark for mark in (self.fed, self.launching, self.end) if mark is not None]
        return [self.begin, *ends, *(mark for part in (*self.waits, *self.cuts) for mark in part)]

    @property
    def hold(self) -> float:
        """Seconds that the device is held back before the stretch that begins now; 0 for none."""
        if self.fed is None:
            return 0.0
        place = 0 if self.launching is None else 1 + len(self.cuts)
        place += sum(wait[0].host >= self.fed.host for wait in self.waits)
        return self.holds[place] if place < len(self.holds) else 0.0


class DeviceShares:
    """Looks at a step every now and then: where its time went follows from when the device came to which point.

    Now and then the device is held back at the beginning of a step, so that the host is ahead of it: then its kernels
    follow each other without gaps, and it is known how long they take.

    Args:
        events: of the device that computes.
        copies: how many of the last copies to the device may have to do with a step.
        clock: of the host.
    """

    def __init__(
        self,
        events: DeviceEvents,
        copies: int = 4,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.is_sampling = False
        self._events, self._clock = events, clock
        self._busy = BusyTimes()
        self._sum = StepParts()
        self._sample: _Sample | None = None
        self._pending: deque[_Sample] = deque()
        self._unresolved: deque[SampledStep] = deque(maxlen=MOST_PENDING)
        self._copies: deque[tuple[Any, Any]] = deque(maxlen=copies)
        self._asked = 0.0
        self._due = 0.0  # the next sample
        self._marks = 4  # of the last one
        self._holds: tuple[float, ...] = ()  # that would tell more, where any would
        self._next_hold = self._last_hold = 0.0
        self._newest: SampledStep | None = None
        self._is_unknown = False  # how long the newest computes
        self._quick_holds = self._learned = 0
        # Steps at equal distances would meet the same steps of every line of the log.
        self._jitter = random.Random(0)

    @contextmanager
    def recording(self) -> Iterator[None]:
        """A run trains: what waits for the device in it is noticed."""
        try:
            with watched_reads(self, "cuda"):
                yield
        finally:
            self.pause()

    def asks_for_batch(self) -> None:
        self._asked = self._clock()

    def got_batch(self) -> float:
        now = self._clock()
        sample = self._sample
        if sample is not None:
            sample.asked = self._asked
            sample.fed = self._mark()
            sample.launching = self._resumed(sample, sample.fed)
        return now - self._asked

    def calls_step(self) -> None:
        """What is done between batch and step is host's work, and told as such."""

    def ends_step(self) -> None:
        sample = self._sample
        if sample is None and self._clock() < self._due:
            return
        end = self._mark()
        if sample is not None:
            self._close(sample, end)
        self._sample, self.is_sampling = None, False
        self._read_past_samples()
        if end.host >= self._due and len(self._pending) < MOST_PENDING:
            self._due = end.host + SECONDS_A_MARK * self._marks * (0.5 + self._jitter.random())
            begin = end if sample is None else self._mark()
            self._sample, self.is_sampling = _Sample(begin, self._take_holds(end.host)), True
        elif sample is None:
            self._events.give_back(end.event)

    def note_copy(self, start: Any, end: Any) -> None:
        """Events before and after a copy to the device, whose start lies before that of the next."""
        self._copies.append((start, end))

    def ends_pass(self) -> None:
        """A pass of the step is launched, and the next one begins."""
        sample = self._sample
        if sample is None or sample.fed is None or len(sample.cuts) >= MOST_CUTS or not self._events.is_recordable():
            return
        end = self._mark()
        sample.cuts.append((end, self._resumed(sample, end)))

    def wait_begins(self) -> Any:
        """The host is about to wait for the device; None where nobody wants to know."""
        return self._mark() if self._sample is not None and self._events.is_recordable() else None

    def wait_ends(self, begin: Any, has_waited: bool) -> None:
        sample = self._sample
        if sample is None or not has_waited or len(sample.waits) >= MOST_WAITS:
            self._events.give_back(begin.event)
            return
        end = self._mark()
        sample.waits.append((begin, end, self._resumed(sample, end)))

    def pause(self) -> None:
        if self._sample is not None:
            self._give_back(self._sample)
        self._sample, self.is_sampling = None, False

    def forget(self) -> None:
        self.pause()
        self._sum = StepParts()

    def take(self, seconds: float) -> dict[str, float]:
        """The shares of the sampled steps that are over; none where there was none."""
        self._read_past_samples()
        found, self._sum = self._sum, StepParts()
        return found.shares()

    def _mark(self) -> _EventMark:
        return _EventMark(self._clock(), self._events.record())

    def _resumed(self, sample: _Sample, end: _EventMark) -> _EventMark:
        """From where on the next stretch is launched: here, or after the device was held back."""
        seconds = sample.hold
        if not seconds:
            return end
        self._events.hold(seconds)
        return self._mark()

    def _close(self, sample: _Sample, end: _EventMark) -> None:
        sample.end, self._marks = end, len(sample.marks) + 1
        if sample.fed is None or len(sample.waits) >= MOST_WAITS:  # the first step of a run; or one with too many
            self._give_back(sample)
            return
        sample.copies = tuple(self._copies)
        self._pending.append(sample)

    def _take_holds(self, now: float) -> tuple[float, ...]:
        """How long the device is held back in the step that begins, before each of its stretches."""
        if self._is_unknown and self._quick_holds < MOST_QUICK:
            self._next_hold = min(self._next_hold, self._last_hold + QUICK_HOLD_EVERY * sum(self._holds))
        if not self._holds or now < self._next_hold:
            return ()
        self._last_hold = now
        holds, self._holds = self._holds, ()
        is_quick = self._quick_holds < MOST_QUICK and (self._learned < QUICK_LEARNED or self._is_unknown)
        self._quick_holds += is_quick
        self._next_hold = now + sum(holds) * (QUICK_HOLD_EVERY if is_quick else HOLD_EVERY)
        return holds

    def _read_past_samples(self) -> None:
        """Those that the device has come to; no other is waited for."""
        while self._pending and self._is_past(self._pending[0]):
            sample = self._pending.popleft()
            step = on_one_clock(self._read(sample))
            self._give_back(sample)
            if not step.was_held:
                self._unresolved.append(step)
                self._newest = step
                self._holds = _holds_for(step) or self._holds
            elif len(step.stretches) == len(sample.holds):  # else it was held back at other places than was meant
                self._busy.learn(step)
                self._learned += 1
        self._resolve()

    def _resolve(self) -> None:
        """Add up what is known. A step like which none was held back yet, as the first one may be, waits for one."""
        unknown = []
        for step in self._unresolved:
            busy = self._busy.of(step)
            if busy is None:
                unknown.append(step)
            else:
                self._sum += parts_of(step, busy)
        self._is_unknown = any(step is self._newest for step in unknown)
        self._unresolved = deque(unknown, maxlen=MOST_PENDING)

    def _is_past(self, sample: _Sample) -> bool:
        """All of it: a wait may have been for another stream."""
        events = [*(mark.event for mark in sample.marks), *(end for _, end in sample.copies)]
        return all(self._events.is_past(event) for event in reversed(events))

    def _read(self, sample: _Sample) -> SampledStep:
        assert sample.asked is not None and sample.fed and sample.launching and sample.end
        first = sample.begin.event

        def read(mark: _EventMark) -> Mark:
            return Mark(mark.host, self._events.seconds(first, mark.event))

        def span(copy: tuple[Any, Any]) -> Interval:
            return self._events.seconds(first, copy[0]), self._events.seconds(first, copy[1])

        return SampledStep(
            read(sample.begin), sample.asked, read(sample.fed), read(sample.launching), read(sample.end),
            tuple(Wait(read(begin), read(end), read(resumed)) for begin, end, resumed in sample.waits),
            tuple(span(copy) for copy in sample.copies),
            tuple(Cut(read(end), read(resumed)) for end, resumed in sample.cuts), bool(sample.holds),
        )  # fmt: skip

    def _give_back(self, sample: _Sample) -> None:
        for event in {id(mark.event): mark.event for mark in sample.marks}.values():
            self._events.give_back(event)


def _holds_for(step: SampledStep) -> tuple[float, ...]:
    """How long the device would have to be held back before each stretch of such a step; empty where it was busy."""
    stretches = step.stretches
    if all(stretch.has_no_gaps(was_held=False) for stretch in stretches):
        return ()
    return tuple(min(MOST_HELD, HOLD_FACTOR * stretch.host_seconds + HOLD_SPARE) for stretch in stretches)
