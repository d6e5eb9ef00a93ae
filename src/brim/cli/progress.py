"""A bar on stderr while a command works, gone at the end; nothing where stderr is a file."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn


@contextmanager
def progress_bar(name: str, amount: ProgressColumn) -> Iterator[Callable[[int, int | None], None]]:
    """Yields what is to be called with how much is done, and of how much; ``amount`` shows both."""
    console = Console(stderr=True)
    columns = TextColumn(name), BarColumn(), amount, TimeRemainingColumn()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(name, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
