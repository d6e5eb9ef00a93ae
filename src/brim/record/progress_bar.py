"""The bar that shows how far a run is, at a cost that does not show in the step time."""

import time

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

REFRESH_SECONDS = 0.5


class ProgressBar:
    """A bar in a terminal; silence elsewhere, where lines in the journal tell the same.

    rich's own refresh thread takes the interpreter lock ten times a second from the training loop, so it is off: the
    bar is drawn from the loop, at most twice a second.
    """

    def __init__(self, console: Console, total: int | None, is_silent: bool = False) -> None:
        self.is_visible = console.is_terminal and not console.quiet and not is_silent
        self._drawn = 0.0
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("{task.fields[numbers]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
            auto_refresh=False,
            transient=True,
        )
        self._task = self._bar.add_task("training", total=total, numbers="")
        if self.is_visible:
            self._bar.start()

    def show(self, step: int, epoch: int, numbers: str | None = None) -> None:
        """Tell the bar where training is. Cheap enough for every step."""
        if not self.is_visible:
            return
        now = time.monotonic()
        if numbers is None and now - self._drawn < REFRESH_SECONDS:
            return
        self._drawn = now
        fields = {} if numbers is None else {"numbers": numbers}
        self._bar.update(self._task, completed=step, description=f"epoch {epoch}", **fields)  # type: ignore[arg-type]
        self._bar.refresh()

    def close(self) -> None:
        if self.is_visible:
            self._bar.stop()
