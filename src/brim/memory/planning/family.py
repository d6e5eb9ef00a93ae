"""The traces of one job at all batch sizes, from a few that were really made.

Between two batch sizes at which a job does the same things in the same order, every storage grows on a straight line.
Then the trace at any size in between, or a little beyond, follows from the two, and replaying it costs milliseconds
where tracing costs seconds. The allocator is replayed for each size all the same: reserved memory is not smooth.

What kernels take for themselves can be another thing at another size, so that is taken from the larger of the two, in
proportion to the batch. A size that was found this way is looked at with a trace of its own before it is believed.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from brim.memory.allocator.allocator import OutOfMemory, replay
from brim.memory.trace.trace import DEATH, Trace

Events = list[tuple[int, int]]
NEAR, USUAL, FAR = 16, 8, 4  # the parts of a batch size by which the lower end of a line is smaller than it


@dataclass(frozen=True)
class Line:
    """Events whose sizes are straight lines: (number, size at batch 0, growth a sample), growth None for a death."""

    events: list[tuple[int, float, float | None]]
    optional: frozenset[int] = frozenset()

    def events_at(self, batch_size: int) -> Events:
        return [
            (number, DEATH if growth is None else max(0, round(base + growth * batch_size)))
            for number, base, growth in self.events
        ]


class TraceFamily:
    """Traces of a job by batch size, made when they are needed."""

    def __init__(self, make: Callable[[int], Trace]) -> None:
        self._make = make
        self.traces: dict[int, Trace] = {}
        self.sliced: dict[int, TraceFamily] = {}  # the same job in slices of batches of these sizes

    def trace(self, batch_size: int) -> Trace:
        if batch_size not in self.traces:
            self.traces[batch_size] = self._make(batch_size)
        return self.traces[batch_size]

    def neighbour(self, batch_size: int) -> int:
        """A smaller size to draw a line from: the nearest that was traced already, if it is neither near nor far."""
        most, least = (batch_size - max(1, batch_size // part) for part in (NEAR, FAR))
        traced = [size for size in self.traces if least <= size <= most]
        return max(1, max(traced, default=batch_size - max(1, batch_size // USUAL)))

    def line_through(self, low: int, high: int) -> Line | None:
        """The line through two sizes, or None where the job does different things at them."""
        small, large = self.trace(low), self.trace(high)
        smaller = [size for number, size in small.events if small.storages[number].kind != "workspace"]
        dies = {number for number, size in large.events if size == DEATH}
        place, events = 0, list[tuple[int, float, float | None]]()
        for number, size in large.events:
            workspace = large.storages[number].kind == "workspace"
            if not workspace:
                if place == len(smaller) or (smaller[place] == DEATH) != (size == DEATH):
                    return None
                place += 1
            if size == DEATH:
                events.append((number, 0.0, None))
            elif workspace:
                events.append((number, 0.0, size / high) if number in dies else (number, size, 0.0))
            else:
                growth = (size - smaller[place - 1]) / (high - low)
                events.append((number, size - growth * high, growth))
        return Line(events, large.optional) if place == len(smaller) else None


def fits(events: Events, cap: int, expandable: bool = False, optional: Collection[int] = ()) -> bool:
    """Whether a trace runs under a cap, with the allocator giving back what is free before it gives up.

    ``optional``: the storages that are left out where there is no room for them.
    """
    try:
        replay(events, cap, expandable, optional)
    except OutOfMemory:
        return False
    return True
