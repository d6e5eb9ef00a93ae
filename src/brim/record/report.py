"""report.html: one page that shows a run, self-contained, so that it can be mailed or opened years later."""

import base64
import hashlib
import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

from brim.errors import ConfigError
from brim.record.key_numbers import is_lower_better, key_numbers, started_at
from brim.record.plain_yaml import read_yaml
from brim.record.run_folder import RunFolder
from brim.record.run_record import RunRecord, read_run
from brim.record.series import Point, as_number, thin, trend

REPORT = "report.html"
FIRST_EVENTS, LAST_EVENTS = 200, 800  # of a longer list, the page shows its beginning and its end


def write_report(folder: RunFolder) -> Path:
    """Write ``report.html`` of a run, finished or not, and say where it is.

    >>> write_report(RunFolder.open("runs/20260102-030405-bpr"))  # doctest: +SKIP
    PosixPath('runs/20260102-030405-bpr/report.html')
    """
    folder.write(REPORT, render(page_data(read_run(folder))))
    return folder.path / REPORT


def page_data(run: RunRecord) -> dict[str, Any]:
    """Everything that the page shows, as plain JSON."""
    start = started_at(run.series, run.events)
    left_out = max(0, len(run.events) - FIRST_EVENTS - LAST_EVENTS)
    events = [*run.events[:FIRST_EVENTS], *run.events[FIRST_EVENTS + left_out :]]
    table = _table(run)
    return {
        "name": run.name,
        "model": str(run.about.get("model") or run.model.get("model") or ""),
        "workload": _workload(run.config),
        "started": start,
        "ended": _ending(run),
        "reason": _reason(run),
        "resume": run.folder if run.is_resumable else "",
        "about": {name: _plain(value) for name, value in run.about.items()},
        "key": key_numbers(run.series, run.events, run.result),
        "table": table,
        "table_title": _table_title(run),
        "lower_is_better": sorted({name for row in table.values() for name in row if is_lower_better(name)}),
        "series": [_curve(name, points, start) for name, points in run.series.items()],
        "events": [_event(event, start) for event in events],
        "events_left_out": left_out,
        "first_events": FIRST_EVENTS,
        "config": run.config,
        "machine": {name: _plain(value) for name, value in run.machine.items()},
    }


def render(data: dict[str, Any]) -> str:
    """The page of ``data``. Only the page's own script may run, and nothing may be fetched: its policy says so."""
    page = files("brim.record") / "page"
    style = (page / "page.css").read_text(encoding="utf-8")
    script = "".join((page / name).read_text(encoding="utf-8") for name in ("chart.js", "page.js"))
    parts = {
        "policy": f"default-src 'none'; img-src data:; style-src {_digest(style)}; script-src {_digest(script)}",
        "style": style,
        "script": script,
        # Without a "<" no text of the run can end the block that it stands in, or open another.
        "data": json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c"),
    }
    # In one pass, so that a run that mentions a placeholder is not filled in.
    template = (page / "template.html").read_text(encoding="utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], template)


def _curve(name: str, points: list[Point], start: float) -> dict[str, Any]:
    shown, course = thin(points), trend(points)
    return {
        "name": name,
        "step": [point.step for point in shown],
        "value": [_short(point.value) for point in shown],
        "epoch": [point.epoch for point in shown],
        "seconds": [_since(start, point.time, 2) for point in shown],
        "trend": {"step": [round(step) for step, _ in course], "value": [_short(value) for _, value in course]},
    }


def _short(value: float | None) -> float | None:
    """Six digits: more than a chart shows, and a third of the page's size."""
    return None if value is None else as_number(float(f"{value:.6g}"))


def _since(start: float, time: float, digits: int) -> float | None:
    """Seconds of the run; None where the clock was so wrong that they are no number."""
    return as_number(round(max(0.0, time - start), digits))


def _event(event: dict[str, Any], start: float) -> dict[str, Any]:
    time = as_number(event.get("time"))
    return {
        "seconds": None if time is None else _since(start, time, 3),
        "kind": str(event.get("kind", "note")),
        "line": str(event.get("line", "")),
    }


def _plain(value: Any) -> str:
    """A fact about the machine in words; a list reads as one does."""
    if isinstance(value, list):
        return ", ".join(map(_plain, value))
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _table_title(run: RunRecord) -> str:
    """Which data the metrics are of, where the run says so; those beside baselines are of the test data."""
    told = "test" if "table" in run.result else run.result.get("metrics_of")
    return {"test": "Test", "validation": "Validation"}.get(str(told), "Metrics")


def _table(run: RunRecord) -> dict[str, dict[str, float]]:
    """Metrics by model; without baselines, the one row of this run."""
    table = run.result.get("table") or {str(run.model.get("model", "this run")): run.result.get("metrics")}
    rows = {str(name): _numbers(row) for name, row in table.items()} if isinstance(table, dict) else {}
    return {name: row for name, row in rows.items() if row}


def _numbers(row: Any) -> dict[str, float]:
    found = {name: as_number(value) for name, value in row.items()} if isinstance(row, dict) else {}
    return {name: value for name, value in found.items() if value is not None}


def _ending(run: RunRecord) -> str:
    if "ended" in run.result:
        return str(run.result["ended"])
    last = run.events[-1] if run.events else {}
    if last.get("kind") == "interrupted":
        by = last.get("by")
        return f"by {by}" if isinstance(by, str) else "by a signal"
    return "failed" if last.get("kind") == "failed" else "unfinished"


def _reason(run: RunRecord) -> str:
    """Why a run failed; empty where it did not."""
    return str(run.events[-1].get("line", "")) if _ending(run) == "failed" else ""


def _workload(config: str) -> str:
    try:
        settings = read_yaml(config, "the configuration")
    except ConfigError:
        return ""
    workload = settings.get("workload") if isinstance(settings, dict) else None
    return workload if isinstance(workload, str) else ""


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
