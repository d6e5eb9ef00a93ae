"""One step as marks on two clocks, the host's and the device's, and what follows from them.

A mark is an event that the host puts into the stream: it passes when the device has done everything before it. So the
device's time of a mark is never before the host's, and how far it is behind is how much work was queued. Nothing has to
wait for anything to know that.

Between two marks the device is busy for as long as it was the case in a stretch that it began after the host had
launched all of it: then there are no gaps between kernels. Idle time is the rest, and belongs to what the host did.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from brim.engine.shares.step_parts import StepParts
from brim.intervals import Interval, difference, intersection, length, union

CAUGHT_UP = 20e-6  # seconds that a mark is behind the host where the device has nothing else to do
LEAST_LAUNCHING = 50e-6  # seconds of the host: less says nothing of its pace
LEAST_PACE = 0.05


@dataclass(frozen=True)
class Mark:
    """A moment of the host, and when the device came to it: seconds of either's own clock."""

    host: float
    device: float

    @property
    def queued(self) -> float:
        """How far the device was behind, where both clocks are one."""
        return self.device - self.host


@dataclass(frozen=True)
class Wait:
    """The host waits for the device, to read a number say. ``resumed``: from where on work is launched again."""

    begin: Mark
    end: Mark
    resumed: Mark

    @property
    def is_for_work(self) -> bool:
        """Whether the device had something to do: it is idle afterwards because nothing could be queued meanwhile."""
        return self.begin.queued > CAUGHT_UP


@dataclass(frozen=True)
class Cut:
    """One pass of the step is launched, and the next one begins: at ``resumed``, where the device was held back."""

    end: Mark
    resumed: Mark


@dataclass(frozen=True)
class Stretch:
    """Work that is launched without waiting for the device; ``after``: the wait that it follows on, if it does."""

    start: Mark
    end: Mark
    after: Wait | None = None

    @property
    def device_seconds(self) -> float:
        return max(0.0, self.end.device - self.start.device)

    @property
    def host_seconds(self) -> float:
        return self.end.host - self.start.host

    def has_no_gaps(self, was_held: bool) -> bool:
        """Whether the device was busy throughout: the host was ahead of it from beginning to end."""
        return self.start.device >= self.end.host or (was_held and self.end.queued > CAUGHT_UP)


@dataclass(frozen=True)
class SampledStep:
    """From the end of one step to the end of the next.

    ``asked``: when the host began to wait for a batch; ``fed``: the batch is there, for the device too; ``launching``:
    the step begins, later than ``fed`` for the device where it was held back. ``copies``: to the device, by its clock.
    """

    begin: Mark
    asked: float
    fed: Mark
    launching: Mark
    end: Mark
    waits: tuple[Wait, ...] = ()
    copies: tuple[Interval, ...] = ()
    cuts: tuple[Cut, ...] = ()
    was_held: bool = False

    @property
    def waits_before(self) -> tuple[Wait, ...]:
        """Those between two steps: in callbacks, or where losses are read."""
        return tuple(wait for wait in self.waits if wait.begin.host < self.asked)

    @property
    def stretches(self) -> list[Stretch]:
        """The step itself, cut between passes, and where the host waited for the device."""
        within = [wait for wait in self.waits if wait.begin.host >= self.fed.host]
        ends: list[tuple[Mark, Mark, Wait | None]] = [(wait.begin, wait.resumed, wait) for wait in within]
        ends += [(cut.end, cut.resumed, None) for cut in self.cuts]
        found, start, after = [], self.launching, None
        for end, resumed, wait in sorted(ends, key=lambda one: one[0].host):
            found.append(Stretch(start, end, after))
            start, after = resumed, wait
        return [*found, Stretch(start, self.end, after)]


def on_one_clock(step: SampledStep) -> SampledStep:
    """The same step, the device's clock set by the host's.

    The mark that the device was least behind at is taken for one that it was not behind at. Where it always was, it was
    never idle, and there is nothing to put down to the host.
    """
    marks = [step.begin, step.fed, step.launching, step.end]
    marks += [mark for wait in step.waits for mark in (wait.begin, wait.end, wait.resumed)]
    marks += [mark for cut in step.cuts for mark in (cut.end, cut.resumed)]
    shift = min(mark.queued for mark in marks)

    def moved(mark: Mark) -> Mark:
        return Mark(mark.host, mark.device - shift)

    return replace(
        step,
        begin=moved(step.begin), fed=moved(step.fed), launching=moved(step.launching), end=moved(step.end),
        waits=tuple(Wait(moved(one.begin), moved(one.end), moved(one.resumed)) for one in step.waits),
        copies=tuple((start - shift, end - shift) for start, end in step.copies),
        cuts=tuple(Cut(moved(one.end), moved(one.resumed)) for one in step.cuts),
    )  # fmt: skip


def parts_of(step: SampledStep, busy: Sequence[float]) -> StepParts:
    """Where the time of a step went, whose clocks are one and which was not held back.

    ``busy``: seconds in which kernels run, in each of its stretches.
    """
    copies = union(step.copies)
    return _before_step(step, copies) + _within_step(step, busy, copies)


def _before_step(step: SampledStep, copies: list[Interval]) -> StepParts:
    """From the step before to the batch. The device waits for the host, or for the copy; what else it does is work."""
    area = [(step.begin.device, step.fed.device)]
    copying = intersection(area, copies)
    idle = union([*intersection(area, [(step.begin.device, step.fed.host)]), *copying])
    rest = difference(idle, copying)
    data = intersection(rest, [(step.asked, step.fed.host)])
    rest = difference(rest, data)
    waits = [(one.begin.host, step.asked if one.is_for_work else one.end.host) for one in step.waits_before]
    sync = intersection(rest, union(waits))
    return StepParts(
        length(data), length(copying), length(area) - length(idle), length(sync), length(difference(rest, sync))
    )


def _within_step(step: SampledStep, busy: Sequence[float], copies: list[Interval]) -> StepParts:
    found, stretches = StepParts(), step.stretches
    first, first_busy = stretches[0], busy[0]
    for stretch, seconds in zip(stretches, busy, strict=True):
        compute, wait = min(stretch.device_seconds, seconds), stretch.after
        if wait is None:
            gap = _gap_by_queue(stretch, compute)
        else:
            gap = gap_at_start(stretch, compute, first, first_busy)
            found += StepParts(sync=max(0.0, wait.resumed.device - wait.begin.device))
        found += _stretch_parts(stretch, compute, gap, copies, wait is not None and wait.is_for_work)
    return found


def launching_pace(stretch: Stretch, busy: float) -> float | None:
    """How much work for the device the host launches in a second; None where that cannot be told.

    What the device has to do of earlier steps, it does beside: host = earlier + pace * host + idle.
    """
    host, earlier = stretch.host_seconds, max(0.0, stretch.start.queued)
    idle = stretch.device_seconds - min(stretch.device_seconds, busy)
    if host < LEAST_LAUNCHING or earlier >= host:
        return None
    pace = 1.0 - (earlier + idle) / host
    return pace if pace > LEAST_PACE else None


def gap_at_start(stretch: Stretch, compute: float, first: Stretch, first_busy: float) -> float:
    """How long the device is idle before the first kernel of a stretch, by how the step's first one was launched.

    Its idle time is this gap, and those between kernels while the host launches them at its pace:
    idle = gap + (host - gap) * (1 - pace). Where the first stretch begins with Python, there is little of a pace to be
    seen, but how long the host needs at most for so much work. Both tell a gap that must be there: the longer one is.
    """
    idle, pace = stretch.device_seconds - compute, launching_pace(first, first_busy)
    if pace is None:
        return _gap_by_queue(stretch, compute)
    by_pace = (idle - stretch.host_seconds * (1.0 - pace)) / pace
    by_work = stretch.host_seconds - first.host_seconds * compute / first_busy
    return min(idle, max(0.0, by_pace, by_work))


def _gap_by_queue(stretch: Stretch, compute: float) -> float:
    """The same without a pace: so much of the idle time as of the work is still queued when all is launched."""
    idle = stretch.device_seconds - compute
    return idle * min(1.0, max(0.0, stretch.end.queued) / compute) if compute else idle


def _stretch_parts(
    stretch: Stretch, compute: float, gap: float, copies: list[Interval], follows_wait: bool
) -> StepParts:
    """``gap``: idle time at its beginning, which is the fault of a wait there. The rest of its idle time is anywhere,
    and a copy beside the stretch lies in it as much as elsewhere."""
    whole, start, end = stretch.device_seconds, stretch.start.device, stretch.end.device
    idle = whole - compute
    copied_first = length(intersection(copies, [(start, start + gap)]))
    copied_later = length(intersection(copies, [(start + gap, end)]))
    copy = copied_first + ((idle - gap) * copied_later / (whole - gap) if whole > gap else 0.0)
    sync = gap - copied_first if follows_wait else 0.0
    return StepParts(copy=copy, compute=compute, sync=sync, launch=max(0.0, idle - copy - sync))
