"""What speaks for capturing now: the pace of eager steps, the steps that are left, what attempts have cost."""

from collections.abc import Callable, Mapping
from typing import Any

from brim.engine.captured.inputs import Key
from brim.engine.captured.payoff.decision import (
    TRY,
    WAIT,
    Attempts,
    Decision,
    Pace,
    decide,
    least_used,
    steps_expected,
    was_wasted,
)
from brim.engine.captured.payoff.eager_pace import EagerPace

MOST_SHAPES = 256  # counted; of more, those that came once are forgotten
MOST_WAITS = 8  # due steps for which the pace may be unknown: the device has not come to its events
MOST_WASTED = 2  # times that graphs were dropped before they had earned their cost


class Prospects:
    """Asked before each attempt. ``steps_left``: of the run, from now on; None where that is not known."""

    def __init__(self, pace: EagerPace, steps_left: Callable[[], int | None] = lambda: None) -> None:
        self.pace = pace
        self._steps_left = steps_left
        self._seen: dict[Key, int] = {}
        self._steps = 0
        self._known: Pace | None = None
        self._attempts = Attempts()
        self._waits = self._wasted = 0

    def note_step(self, key: Key) -> None:
        """A step with a batch of this shape, eager or replayed."""
        self._steps += 1
        self._seen[key] = self._seen.get(key, 0) + 1
        if len(self._seen) > MOST_SHAPES:
            self._seen = {shape: steps for shape, steps in self._seen.items() if steps > 1}

    def note_attempt(self, seconds: float, saved: float | None) -> None:
        """One was made, and took so long; ``saved``: seconds a step, where it came to a graph."""
        self._attempts = Attempts(seconds, saved if saved is not None else self._attempts.saved)
        self.pace.forget()

    def decide(self, key: Key, graphs: Mapping[Key, Any], most_graphs: int) -> Decision:
        """Whether to capture this shape now; beside the graphs that are kept, or instead of the one least used."""
        self._known = self._known if self._attempts.saved is not None else self.pace.read() or self._known
        if self._known is None:
            self._waits += 1
            if self._waits <= MOST_WAITS:
                return Decision(WAIT)
            # A device so far behind the host may well be the limit; an attempt would begin by waiting for it, too.
            self._known = self.pace.read(wait=True)
        if self._known is None:
            return Decision(TRY)
        left, seen = self._steps_left(), self._seen.get(key, 0)
        if len(graphs) >= most_graphs:  # its steps would be replayed, and those of another one would not
            seen = max(0, seen - self._seen.get(least_used(graphs, self._seen), 0))
        return decide(self._known, left, steps_expected(seen, self._steps, left), self._attempts)

    def least_used(self, graphs: Mapping[Key, Any]) -> Key:
        """The shape whose graph makes way for another."""
        shape: Key = least_used(graphs, self._seen)
        return shape

    def note_drop(self, replays: int) -> bool:
        """Graphs are dropped after so many replays; True where that was too early for the second time."""
        self._wasted += was_wasted(replays, self._attempts)
        return self._wasted >= MOST_WASTED
