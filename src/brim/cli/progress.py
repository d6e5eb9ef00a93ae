"""What a command is doing, on stderr: a bar, or a sentence."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn

REFRESHES = 2  # a second: drawing takes the interpreter from the steps that are timed


@contextmanager
def progress_bar(name: str, amount: ProgressColumn) -> Iterator[Callable[[int, int | None], None]]:
    """A bar, gone at the end; nothing where stderr is a file.

    Yields what is to be called with how much is done, and of how much; ``amount`` shows both.
    """
    console = Console(stderr=True)
    columns = TextColumn(name), BarColumn(), amount, TimeRemainingColumn()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(name, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


@contextmanager
def telling(if_stopped: str, unsaid: str = "") -> Iterator[Callable[[str], None]]:
    """Yields what takes sentences on what is being done: a line that changes, or in a file or a pipe one after another.

    Args:
        if_stopped: what a Ctrl-C becomes.
        unsaid: a sentence that is not written to files: what is wrong with the input shows while it is read, and stays
            one sentence.
    """
    # By its file, because stderr is another one while a run is kept quiet.
    progress = Console(file=sys.stderr, highlight=False)
    try:
        with progress.status("starting", refresh_per_second=REFRESHES) as status:

            def say(sentence: str) -> None:
                if progress.is_terminal:
                    status.update(sentence)
                elif sentence != unsaid:
                    progress.print(sentence, soft_wrap=True)

            yield say
    except KeyboardInterrupt:
        raise KeyboardInterrupt(if_stopped) from None
