"""What the page of a run shows, as plain JSON."""

import json
from pathlib import Path
from typing import Any

from brim.errors import ConfigError
from brim.record.curves.curve import STRETCHES, Curve
from brim.record.event_list import FIRST, shortened
from brim.record.key_numbers import ended_at, is_higher_better, key_numbers, started_at, watched_metric
from brim.record.plain_yaml import read_yaml
from brim.record.report.memory_forecast import memory_forecast, plan_of
from brim.record.report.pictures import pictures_in
from brim.record.report.recommendations import people_in
from brim.record.report.shown_numbers import short, since
from brim.record.report.step_times import STEP_MS, step_times
from brim.record.report.time_shares import time_shares
from brim.record.report.timeline import timeline
from brim.record.run_record import WAIT_SHARE, RunRecord
from brim.record.series import SHARE, as_number, numbers_in

ACCUMULATION = ("accumulate_grad_batches", "gradient_accumulation_steps")
MOST_BATCHES = 10**6  # of a step
MOST_STRETCHES, LEAST_STRETCHES = 30_000, 20  # of all curves of a page, which come to 2 MB; of one of very many


def page_data(run: RunRecord) -> dict[str, Any]:
    """Everything that the page shows."""
    start, end = started_at(run.series, run.events), ended_at(run.series, run.events)
    events, left_out = shortened(run.events)
    settings, table = _settings(run.config), _table(run)
    curves = {name: curve for name, curve in run.series.items() if not _is_share(name)}
    stretches = min(STRETCHES, max(LEAST_STRETCHES, MOST_STRETCHES // max(1, len(curves))))
    return {
        "name": run.name,
        "model": str(run.about.get("model") or run.model.get("model") or ""),
        "workload": _workload(settings),
        "started": start,
        "ended": _ending(run),
        "reason": _reason(run),
        "resume": run.folder if run.is_resumable else "",
        "about": {name: _plain(value) for name, value in run.about.items()},
        "key": key_numbers(run.series, run.events, {**watched_metric(settings.get("trainer")), **run.result}),
        "table": table,
        "table_title": _table_title(run),
        "lower_is_better": sorted({name for row in table.values() for name in row if is_higher_better(name) is False}),
        "series": [_curve(name, curve, start, stretches) for name, curve in curves.items()],
        "is_thinned": any(curve.is_thinned(stretches) for curve in curves.values()),
        "step_times": step_times([run.series.get(STEP_MS)])[0],
        "shares": time_shares(run, _accumulation(settings)),
        "forecast": memory_forecast(run),
        "plan": plan_of(run),
        "timeline": timeline(events, run.checkpoints, start, end),
        "length": since(start, end),
        "events": [_event(event, start) for event in events],
        "events_left_out": left_out + run.events_left_out,
        "first_events": FIRST,
        "pictures": [{"name": picture.name, "address": picture.address} for picture in pictures_in(run.folder)],
        "people": [person.as_json() for person in people_in(Path(run.folder))],
        "config": run.config,
        "machine": {name: _plain(value) for name, value in run.machine.items()},
    }


def _is_share(name: str) -> bool:
    """Whether a curve is drawn with the others of its kind, as areas."""
    return name == WAIT_SHARE or name.startswith(SHARE)


def _curve(name: str, curve: Curve, start: float, stretches: int) -> dict[str, Any]:
    shown, course = curve.points_in(stretches), curve.trend()
    return {
        "name": name,
        "step": [point.step for point in shown],
        "value": [short(point.value) for point in shown],
        "epoch": [point.epoch for point in shown],
        "seconds": [since(start, point.time) for point in shown],
        "trend": {"step": [round(step) for step, _ in course], "value": [short(value) for _, value in course]},
    }


def _event(event: dict[str, Any], start: float) -> dict[str, Any]:
    time = as_number(event.get("time"))
    return {
        "seconds": None if time is None else since(start, time, 3),
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
    rows = {str(name): numbers_in(row) for name, row in table.items()} if isinstance(table, dict) else {}
    return {name: row for name, row in rows.items() if row}


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


def _settings(config: str) -> dict[Any, Any]:
    try:
        settings = read_yaml(config, "the configuration")
    except ConfigError:
        return {}
    return settings if isinstance(settings, dict) else {}


def _workload(settings: dict[Any, Any]) -> str:
    workload = settings.get("workload")
    return workload if isinstance(workload, str) else ""


def _accumulation(settings: dict[Any, Any]) -> int:
    """Batches of a step, by either name of the setting."""
    trainer = settings.get("trainer")
    told = [trainer.get(name) for name in ACCUMULATION] if isinstance(trainer, dict) else []
    return next((value for value in told if isinstance(value, int) and 0 < value <= MOST_BATCHES), 1)
