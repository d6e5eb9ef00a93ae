"""``brim runs``: which runs there are and how they stand; ``brim runs compare``: how two of them differ."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

LIST = "list"
PATIENCE_SECONDS = 2.0  # before one is told that something is going on


class RunsCommands(TyperGroup):
    """``brim runs FOLDER`` means ``brim runs list FOLDER``: people should not have to say what is clear."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] not in ctx.help_option_names):
            args = [LIST, *args]
        return super().parse_args(ctx, args)


def list_runs(
    folder: Annotated[Path | None, typer.Argument(help="Folder to look in; default: runs.", metavar="[FOLDER]")] = None,
    last: Annotated[int | None, typer.Option(help="Show only the last N runs.", min=1)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the list as JSON.")] = False,
) -> None:
    """List runs: how each stands, what it trains, how far it came and its best evaluation."""
    from rich.console import Console

    from brim.errors import printable
    from brim.observe.run_search import find_runs, open_folder
    from brim.observe.run_summary import summarize
    from brim.observe.runs_view import runs_table

    within, blocked = open_folder(folder), list[Path]()
    found = [summarize(run) for run in told_if_long(list(find_runs(within, blocked.append)))]
    found.sort(key=lambda run: (run.started or 0.0, str(run.folder)))
    shown = found if last is None else found[-last:]
    if as_json:
        typer.echo(json.dumps([run.as_json() for run in shown]))
    elif not shown:
        typer.echo(f"no runs in {printable(str(within))}; brim train makes one")
    else:
        console = Console(highlight=False, markup=False, emoji=False)
        console.print(runs_table(shown, within, console.width))
        if len(shown) < len(found):
            typer.echo(f"the last {len(shown):,} of {len(found):,} runs")
    for path in blocked[:1]:
        more = f" and {len(blocked) - 1} more" if len(blocked) > 1 else ""
        typer.echo(f"brim: {printable(str(path))}{more} may not be looked into", err=True)


def compare(
    a: Annotated[Path, typer.Argument(help="A run folder, or the name of one in runs.", metavar="A")],
    b: Annotated[Path, typer.Argument(help="Another.", metavar="B")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the comparison as JSON.")] = False,
) -> None:
    """Put two runs side by side: settings that differ, metrics, speed and memory."""
    from rich.console import Console

    from brim.observe.comparison import compare_runs
    from brim.observe.run_search import find_run
    from brim.observe.runs_view import comparison_view

    found = compare_runs(find_run(a), find_run(b))
    if as_json:
        typer.echo(json.dumps(found.as_json(), default=str))
        return
    console = Console(highlight=False, markup=False, emoji=False)
    console.print(comparison_view(found, console.width))


def told_if_long(runs: list[Path]) -> Iterator[Path]:
    """The runs, one after the other; a bar on stderr shows how far that is where it takes more than two seconds."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    console = Console(stderr=True)
    bar = Progress(TextColumn("reading runs"), BarColumn(), MofNCompleteColumn(), console=console, transient=True)
    task, began = bar.add_task("", total=len(runs)), time.monotonic()
    try:
        for number, run in enumerate(runs):
            if console.is_terminal and not bar.live.is_started and time.monotonic() - began > PATIENCE_SECONDS:
                bar.start()
            bar.update(task, completed=number)
            yield run
    finally:
        if bar.live.is_started:
            bar.stop()
