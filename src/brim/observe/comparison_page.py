"""Two runs on one page: what differs between them, and their curves on the same axes."""

from pathlib import Path
from typing import Any

from brim.observe.compared_words import show_number, show_ratio, show_setting
from brim.observe.comparison import Comparison, compare_records, read_record
from brim.record.report.page_data import page_data
from brim.record.report.page_file import TWO_RUNS, render
from brim.record.report.step_times import STEP_MS, step_times

SHOWN_APART = ("events", "config", "machine", "about", "table")  # on the pages of the runs themselves


def comparison_page(a: Path, b: Path) -> str:
    """The page of both runs, finished or not."""
    return render(comparison_data(a, b), TWO_RUNS)


def comparison_data(a: Path, b: Path) -> dict[str, Any]:
    """Everything that the page shows, as plain JSON."""
    records = [read_record(folder) for folder in (a, b)]
    runs = [{name: value for name, value in page_data(run).items() if name not in SHOWN_APART} for run in records]
    times = step_times([run.series.get(STEP_MS) for run in records])
    for run, shown in zip(runs, times, strict=True):
        run["step_times"] = shown  # over the range of both
    return {"runs": runs, "comparison": _compared(compare_records(a, records[0], b, records[1]))}


def _compared(found: Comparison) -> dict[str, Any]:
    return {
        "states": [{"state": run.state.word, "detail": run.state.detail} for run in (found.a, found.b)],
        "settings": [
            {"name": one.name, "a": show_setting(one.a), "b": show_setting(one.b)} for one in found.settings
        ],
        "numbers": [
            {"name": row.name, "a": show_number(row.name, row.a), "b": show_number(row.name, row.b),
             "ratio": show_ratio(row), "better": row.better}
            for row in found.numbers
        ],
        "notes": found.notes,
    }  # fmt: skip
