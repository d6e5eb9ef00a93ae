"""Shares by the host's clock alone: on a CPU, and on devices whose events are not read."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from brim.engine.shares.step_parts import as_shares


class HostShares:
    """Adds up what the loop waits for batches, and what it spends inside steps.

    ``computes_here``: a step is over when the host is done with it, as on a CPU. Elsewhere the time inside steps says
    nothing, and only the waiting is told from the rest.
    """

    def __init__(self, computes_here: bool, clock: Callable[[], float] = time.perf_counter) -> None:
        self.computes_here = computes_here
        self._clock = clock
        self._asked = self._began = clock()
        self._waited = self._computed = 0.0

    @contextmanager
    def recording(self) -> Iterator[None]:
        """A run trains."""
        yield

    def asks_for_batch(self) -> None:
        """The loop waits for a batch from now on."""
        self._asked = self._clock()

    def got_batch(self) -> float:
        """It is there; returns how long the loop has waited."""
        self._began = self._clock()
        waited = self._began - self._asked
        self._waited += waited
        return waited

    def calls_step(self) -> None:
        """The step begins only now: something else was done since the batch was there."""
        self._began = self._clock()

    def ends_step(self) -> None:
        """The step is made."""
        self._computed += self._clock() - self._began

    def note_copy(self, start: Any, end: Any) -> None:
        """Copies are of no interest here."""

    def pause(self) -> None:
        """What follows is no step's: an evaluation, a checkpoint."""

    def forget(self) -> None:
        """The last steps are made once more."""
        self._waited = self._computed = 0.0

    def take(self, seconds: float) -> dict[str, float]:
        """The shares of the steps since the last time, which took so many seconds."""
        waited, computed = self._waited, self._computed if self.computes_here else 0.0
        self.forget()
        rest = max(0.0, seconds - waited - computed)
        parts = {"data_wait": waited, "compute": computed} if self.computes_here else {"data_wait": waited}
        return as_shares({**parts, "rest": rest})
