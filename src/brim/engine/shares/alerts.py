"""Alerts: something costs much of a run's time, or is about to end it. One line each, with the command that would help.

Each is said once for a stretch in which it is so, and again when it was not so in between.
"""

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from brim.record.series import SHARE
from brim.sizes import show_bytes

LOOK_SECONDS = 5.0  # between looks at the card and at memory
MOST_WEIGHT = 20.0  # seconds that one look may stand for: nothing is known of what lies between
DATA_SECONDS, DUTY_SECONDS = 30.0, 60.0
MOST_DATA_WAIT, LEAST_DUTY_CYCLE, MOST_MEMORY = 0.20, 50.0, 0.97
# It is so no longer only when it is clearly not: else each crossing of a limit would be an alert.
DATA_WAIT_OVER, DUTY_CYCLE_OVER, MEMORY_OVER = 0.15, 60.0, 0.94


class Tell(Protocol):
    """Takes a line, and facts for programs."""

    def __call__(self, line: str, /, **facts: Any) -> None: ...


class DutyCycle(Protocol):
    """Whom to ask for how much of the time a GPU computes, in percent."""

    def read(self) -> float | None: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class MemoryUse:
    """Bytes in use of those that could be, where, and the command that says something of it."""

    used: int
    limit: int
    where: str
    command: str
    says: str

    @property
    def share(self) -> float:
        return self.used / self.limit if self.limit else 0.0


class RollingMean:
    """The mean of the last so many seconds, once there are so many."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._values: deque[tuple[float, float]] = deque()
        self._total = self._weighted = 0.0  # of thousands of values, where lines are short

    def add(self, value: float, seconds: float) -> float | None:
        """One more value, which stands for so many seconds."""
        self._values.append((value, seconds))
        self._total += seconds
        self._weighted += value * seconds
        while self._total - self._values[0][1] >= self.seconds:
            old, weight = self._values.popleft()
            self._total -= weight
            self._weighted -= old * weight
        return None if self._total < self.seconds else self._weighted / self._total


class Once:
    """Lets something be said when it comes to be so, and again only after it was over."""

    def __init__(self) -> None:
        self._was_said = False

    def say_now(self, is_so: bool, is_over: bool) -> bool:
        """Take note of how it is; True where it is to be said."""
        if is_so and not self._was_said:
            self._was_said = True
            return True
        if is_over:
            self._was_said = False
        return False


class Alerts:
    """Looks at every line of the log.

    Args:
        tell: gets the alerts.
        doctor: the command that says why a run is slow.
        memory: what is in use; None where that is not known.
        duty_cycle: of the GPU; None where there is no GPU. What it does not tell is taken from the shares.
        clock: in seconds.
    """

    def __init__(
        self,
        tell: Tell,
        doctor: str,
        memory: Callable[[], MemoryUse | None],
        duty_cycle: DutyCycle | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.tell, self.doctor = tell, doctor
        self._memory, self._duty_cycle, self._clock = memory, duty_cycle, clock
        self._looked = clock()
        self._data_wait, self._duty = RollingMean(DATA_SECONDS), RollingMean(DUTY_SECONDS)
        self._data_alert, self._duty_alert, self._memory_alert = Once(), Once(), Once()

    def look(self, shares: Mapping[str, float], seconds: float) -> None:
        """At the shares of a line whose steps took so many seconds; now and then at the card and at memory too."""
        waited = shares.get(f"{SHARE}data_wait")
        if waited is not None:
            self._look_at_data_wait(self._data_wait.add(waited, seconds))
        now = self._clock()
        since = now - self._looked
        if since < LOOK_SECONDS:
            return
        self._looked = now
        self._look_at_memory()
        if self._duty_cycle is not None:
            told, computed = self._duty_cycle.read(), shares.get(f"{SHARE}compute")
            duty = told if told is not None or computed is None else 100 * computed
            if duty is not None:
                self._look_at_duty_cycle(self._duty.add(duty, min(since, MOST_WEIGHT)))

    def close(self) -> None:
        """There are no more lines."""
        if self._duty_cycle is not None:
            self._duty_cycle.close()

    def _look_at_data_wait(self, share: float | None) -> None:
        if share is not None and self._data_alert.say_now(share > MOST_DATA_WAIT, share < DATA_WAIT_OVER):
            self.tell(
                f"data wait: {100 * share:.0f} % of the last {DATA_SECONDS:.0f} s of steps went to waiting for "
                f"batches; `{self.doctor}` says why",
                alert="data_wait", share=round(share, 4), command=self.doctor,
            )  # fmt: skip

    def _look_at_duty_cycle(self, percent: float | None) -> None:
        if percent is not None and self._duty_alert.say_now(percent < LEAST_DUTY_CYCLE, percent > DUTY_CYCLE_OVER):
            self.tell(
                f"low duty cycle: in the last {DUTY_SECONDS:.0f} s the GPU computed {percent:.0f} % of the time; "
                f"`{self.doctor}` says why",
                alert="duty_cycle", percent=round(percent, 1), command=self.doctor,
            )  # fmt: skip

    def _look_at_memory(self) -> None:
        use = self._memory()
        if use is not None and self._memory_alert.say_now(use.share >= MOST_MEMORY, use.share < MEMORY_OVER):
            self.tell(
                f"memory: {show_bytes(use.used)} of {show_bytes(use.limit)} {use.where} are in use "
                f"({100 * use.share:.0f} %); `{use.command}` {use.says}",
                alert="memory", used=use.used, limit=use.limit, command=use.command,
            )  # fmt: skip
