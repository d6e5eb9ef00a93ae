"""``brim watch``: what the GPUs, the CPU and the trainings of this machine are doing."""

import json
import signal
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from brim.observe.snapshot import Watcher

LEAST_SECONDS = 0.2  # the counters of a card need 0.1 s between two looks
FIRST_LOOK_SECONDS = 0.25  # between the two looks that a single reading takes


def watch(
    folder: Annotated[
        Path | None, typer.Argument(help="Folder in which to look for runs; default: runs.", metavar="[FOLDER]")
    ] = None,
    every: Annotated[float, typer.Option(help="Seconds between updates.", min=LEAST_SECONDS)] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Print once and exit.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON: one object per update.")] = False,
) -> None:
    """Watch all GPUs, CPU and RAM, and the runs of brim that go on, until Ctrl-C."""
    from rich.console import Console

    from brim.observe.run_search import open_folder
    from brim.observe.snapshot import Watcher

    console = Console(highlight=False, markup=False, emoji=False)
    with (
        closing(Watcher([open_folder(folder)])) as watcher,
        suppress(KeyboardInterrupt),
        ended_by_sigterm(),
    ):
        watcher.read()  # from here on means are taken
        time.sleep(FIRST_LOOK_SECONDS)
        if once or not (as_json or (console.is_terminal and not console.is_dumb_terminal)):
            _print(console, watcher, as_json)
        elif as_json:
            _print_on(console, watcher, every)
        else:
            _show(console, watcher, every)


def _print(console: "Console", watcher: "Watcher", as_json: bool) -> None:
    from brim.observe.watch_view import watch_frame

    if as_json:
        typer.echo(json.dumps(watcher.read().as_json()))
    else:
        console.print(watch_frame(watcher.read(), console.width))


def _print_on(console: "Console", watcher: "Watcher", every: float) -> None:
    """A line of JSON for each look."""
    while True:
        _print(console, watcher, as_json=True)
        time.sleep(every)


def _show(console: "Console", watcher: "Watcher", every: float) -> None:
    """On the terminal's other screen, so that what was there before comes back."""
    from rich.live import Live

    from brim.observe.watch_view import watch_frame

    # Drawn by hand, and not from a thread: nothing may be drawn after the terminal was given back.
    with Live(console=console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False) as live:
        while True:
            live.update(watch_frame(watcher.read(), console.width), refresh=True)
            time.sleep(every)


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """SIGTERM ends it as Ctrl-C does: the terminal is given back as it was."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
