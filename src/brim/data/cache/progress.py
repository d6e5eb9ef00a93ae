"""How far the building of a cache is, for anything longer than two seconds."""

import sys
import time
from collections.abc import Callable
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

QUIET_SECONDS = 2.0
LINE_SECONDS = 30.0
DRAW_SECONDS = 0.5


class BuildingProgress:
    """A bar on stderr where that is a terminal, lines through ``report`` elsewhere; drawn from the loop itself."""

    def __init__(self, samples: int, report: Callable[[str], None]) -> None:
        self._samples = samples
        self._report = report
        self._console = Console(file=sys.stderr)
        self._bar: Progress | None = None
        self._started = time.monotonic()
        self._next = self._started + QUIET_SECONDS

    def __enter__(self) -> "BuildingProgress":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, done: int) -> None:
        """Cheap enough for every sample."""
        now = time.monotonic()
        if now < self._next:
            return
        if self._console.is_terminal:
            self._next = now + DRAW_SECONDS
            self._draw(done)
        elif done:
            self._next = now + LINE_SECONDS
            left = (now - self._started) / done * (self._samples - done)
            self._report(f"building the cache: {done:,} of {self._samples:,} samples, about {left:,.0f} s left")

    def _draw(self, done: int) -> None:
        if self._bar is None:
            columns = (TextColumn("building the cache"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
            self._bar = Progress(*columns, console=self._console, auto_refresh=False, transient=True)
            self._bar.add_task("", total=self._samples)
            self._bar.start()
        self._bar.update(self._bar.task_ids[0], completed=done)
        self._bar.refresh()
