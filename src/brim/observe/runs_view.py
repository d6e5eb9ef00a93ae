"""How runs look in a terminal: a list of them, and two of them side by side."""

import os
import time
from collections.abc import Sequence
from pathlib import Path

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.text import Text

from brim.errors import printable
from brim.observe.compared_words import show_number, show_ratio, show_setting
from brim.observe.comparison import Comparison, Number
from brim.observe.fitting_table import GAP, FittingColumn, fitting_table
from brim.observe.run_summary import RunSummary
from brim.record.words import show_seconds

LEAST_NAME = 12


def runs_table(runs: Sequence[RunSummary], within: Path, width: int) -> RenderableType:
    """One line a run. Names are what runs are asked for by, so that all other columns but the state go first."""
    state = FittingColumn("state", [run.state.word for run in runs], 0, right=False)
    room = max(LEAST_NAME, width - state.widest - GAP)
    return fitting_table(
        [
            FittingColumn("run", [cut_in_the_middle(_name(run, within), room) for run in runs], 0, room, right=False),
            state,
            FittingColumn("model", [run.model for run in runs], 3, 14, right=False),
            FittingColumn("steps", [_count(run.steps) for run in runs], 2),
            FittingColumn("best", [_best(run) for run in runs], 1, 24, right=False),
            FittingColumn("time", ["" if run.seconds is None else show_seconds(run.seconds) for run in runs], 4),
            FittingColumn("data wait", [_data_wait(run) for run in runs], 6),
            FittingColumn("started", [_moment(run.started) for run in runs], 5),
            FittingColumn("more", [run.state.detail for run in runs], 7, 20, right=False),
        ],
        width,
    )


def cut_in_the_middle(name: str, room: int) -> str:
    """A name of so many characters at most: it begins with a date and ends with a number, and either may tell it apart.

    >>> cut_in_the_middle("20261116-140233-sequential-2", 15)
    '2026111…ntial-2'
    """
    shown = printable(name)
    if cell_len(shown) <= room:
        return shown
    ahead = room // 2
    return f"{shown[:ahead]}…{shown[len(shown) - (room - 1 - ahead) :]}"


def comparison_view(found: Comparison, width: int) -> RenderableType:
    """Settings that differ, then the numbers."""
    parts: list[RenderableType] = []
    for letter, run in (("A", found.a), ("B", found.b)):
        detail = f": {run.state.detail}" if run.state.detail else ""
        parts.append(Text(f"{letter}  {printable(str(run.folder))}  {run.state.word}{printable(detail)}"))
    parts += [Text(), _settings(found, width) if found.settings else Text("no setting differs")]
    numbers = found.numbers
    parts += [Text(), _numbers(numbers, width) if numbers else Text("neither run has written a number")]
    parts += [Text(printable(note), style="yellow") for note in found.notes]
    return Group(*parts)


def _settings(found: Comparison, width: int) -> RenderableType:
    shown = [(setting.name, show_setting(setting.a), show_setting(setting.b)) for setting in found.settings]
    third = max(10, (width - 4) // 3)
    return fitting_table(
        [
            FittingColumn(head, [row[place] for row in shown], 0, third, right=False)
            for place, head in enumerate(("setting", "A", "B"))
        ],
        width,
    )


def _numbers(rows: Sequence[Number], width: int) -> RenderableType:
    return fitting_table(
        [
            FittingColumn("", [row.name for row in rows], 0, 22, right=False),
            FittingColumn("A", [show_number(row.name, row.a) for row in rows], 0),
            FittingColumn("B", [show_number(row.name, row.b) for row in rows], 0),
            FittingColumn("B / A", [show_ratio(row) for row in rows], 1),
            FittingColumn("better", [row.better.upper() for row in rows], 2),
        ],
        width,
    )


def _name(run: RunSummary, within: Path) -> str:
    """From the folder that is listed; that folder's own name where it is the run."""
    return os.path.relpath(run.folder, within) if run.folder != within else run.name


def _count(number: int | None) -> str:
    return "" if number is None else f"{number:,}"


def _best(run: RunSummary) -> str:
    return "" if run.best is None else f"{run.best['name']} {run.best['value']:.4g}"


def _data_wait(run: RunSummary) -> str:
    return "" if not run.shares or "data_wait" not in run.shares else f"{100 * run.shares['data_wait']:.0f} %"


def _moment(at: float | None) -> str:
    try:
        return "" if at is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(at))
    except (OverflowError, ValueError, OSError):  # a clock that was so wrong that it is no date
        return ""
