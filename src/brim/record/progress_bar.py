"""The bar that shows how far a run is, at a cost that does not show in the step time."""

import time

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.table import Column
from rich.text import Text

from brim.record.notebook import BarState, CellView
from brim.record.words import show_number

REFRESH_SECONDS = 0.5
NARROW = 80  # columns: with fewer there is no room for the bar itself and for times


class ProgressBar:
    """A bar in a terminal or in a notebook's ``cell``; silence elsewhere, where lines in the journal tell the same.

    rich's own refresh thread takes the interpreter lock ten times a second from the training loop, so it is off: the
    bar is drawn from the loop, at most twice a second.
    """

    def __init__(
        self, console: Console, total: int | None, is_silent: bool = False, cell: CellView | None = None
    ) -> None:
        self.is_visible = (console.is_terminal or cell is not None) and not console.quiet and not is_silent
        self._cell = cell if self.is_visible else None  # of a notebook, which draws the bar itself
        self._drawn = 0.0
        self._loss: float | None = None
        self._lr: float | None = None
        self._rate: float | None = None
        is_narrow = console.width < NARROW and cell is None
        wide = () if is_narrow else (BarColumn(bar_width=None),)
        steps, times = (column(Column(no_wrap=True)) for column in (_Steps, _Times))  # the bar alone gives way
        columns = (TextColumn("{task.description}"), *wide, steps, TextColumn("{task.fields[numbers]}"))
        self._is_narrow = is_narrow
        self._bar = Progress(
            *columns, *(() if is_narrow else (times,)), console=console, auto_refresh=False, transient=True
        )
        self._task = self._bar.add_task("starting", total=total, numbers="")
        if self.is_visible and self._cell is None:
            self._bar.start()

    def show(self, step: int, epoch: int, loss: float | None = None) -> None:
        """Tell the bar where training is. Cheap enough for every step."""
        if not self.is_visible:
            return
        now = time.monotonic()
        if now - self._drawn >= REFRESH_SECONDS:
            self._loss = loss if loss is not None else self._loss
            self._draw(step, epoch, now)

    def tell(self, step: int, epoch: int, loss: float | None, lr: float, rate: float) -> None:
        """Show the numbers of the last steps at once; ``loss`` is None where none was finite."""
        self._loss, self._lr, self._rate = loss, lr, rate
        if self.is_visible:
            self._draw(step, epoch, time.monotonic())

    def do(self, what: str) -> None:
        """Say what is being done between steps."""
        if self.is_visible:
            self._bar.update(self._task, description=what)
            self._refresh()

    def close(self) -> None:
        if self._cell is not None:
            self._cell.show(None)
        elif self.is_visible:
            self._bar.stop()

    def _draw(self, step: int, epoch: int, now: float) -> None:
        self._drawn = now
        self._bar.update(self._task, completed=step, description=f"epoch {epoch}", numbers=self._numbers())
        self._refresh()

    def _refresh(self) -> None:
        if self._cell is None:
            self._bar.refresh()
            return
        task = self._bar.tasks[0]
        share = None if not task.total else task.completed / task.total
        numbers = str(task.fields["numbers"])
        self._cell.show(BarState(task.description, steps_of(task), share, numbers, times_of(task)))

    def _numbers(self) -> str:
        parts = ["no finite loss" if self._loss is None and self._rate is not None else ""]
        if self._loss is not None:
            parts = [f"loss {show_number(self._loss)}"]
        if self._lr is not None and not self._is_narrow:
            parts.append(f"lr {self._lr:.3g}")
        if self._rate is not None:
            parts.append(f"{self._rate:,.0f}/s" if self._is_narrow else f"{self._rate:,.0f} samples/s")
        return "  ".join(filter(None, parts))


class _Steps(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(steps_of(task))


class _Times(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(times_of(task), style="dim")


def steps_of(task: Task) -> str:
    total = "?" if task.total is None else f"{int(task.total):,}"
    return f"{int(task.completed):,}/{total}"


def times_of(task: Task) -> str:
    left = "" if task.time_remaining is None else f", {_clock(task.time_remaining)} left"
    return f"{_clock(task.elapsed or 0.0)}{left}"


def _clock(seconds: float) -> str:
    """
    >>> _clock(75), _clock(3675)
    ('1:15', '1:01:15')
    """
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
