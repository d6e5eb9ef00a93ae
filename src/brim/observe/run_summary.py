"""A run in one line: what it trains, how it stands, how far it came, and its best evaluation."""

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from brim.errors import ConfigError
from brim.observe.bounded_files import first_object, last_object, last_objects, lines_of, read_object, read_text
from brim.observe.last_shares import last_shares
from brim.observe.run_state import RUNNING, RunState, state_of
from brim.record.curves.curve import Curve
from brim.record.json_object import json_object
from brim.record.key_numbers import best_evaluation, watched_metric
from brim.record.plain_yaml import read_yaml
from brim.record.run_folder import ABOUT, CONFIG, EVENTS, METRICS, MODEL, RESULT
from brim.record.series import as_number, series_of

EVALUATED = b'"eval/'
STEP = re.compile(rb'"step": ?(\d{1,18})[,}]')
LAST_BYTES = 1 << 13  # of metrics.jsonl: some twenty lines
TRAINER = re.compile(r"^trainer:\n((?:  .*\n?)*)", re.MULTILINE)
MONITOR = re.compile(r"^  ((?:monitor|mode): .{1,200})$", re.MULTILINE)


@dataclass(frozen=True)
class RunSummary:
    """What a list of runs shows; None where the run does not say."""

    folder: Path
    state: RunState
    model: str
    steps: int | None
    epochs: int | None
    seconds: float | None
    started: float | None  # unix seconds
    best: dict[str, Any] | None  # name, value, step, epoch
    shares: dict[str, float] | None = None  # of the time of its last steps

    @property
    def name(self) -> str:
        return self.folder.resolve().name

    def as_json(self) -> dict[str, Any]:
        owner = self.state.owner
        return {
            "run": str(self.folder), "state": self.state.word, "detail": self.state.detail, "model": self.model,
            "steps": self.steps, "epochs": self.epochs, "seconds": self.seconds, "started": self.started,
            "best": self.best, "shares": self.shares, "process": None if owner is None else owner.process,
        }  # fmt: skip


def summarize(folder: Path) -> RunSummary:
    """Look into a run folder; whatever is missing or broken in it is left open."""
    result = read_object(folder / RESULT)
    events = folder / EVENTS
    first_event, last_event = first_object(events), last_object(events)
    metrics = scan_metrics(folder / METRICS)
    state = state_of(folder, result, last_event)
    started = min(_times(first_event, metrics.first), default=None)
    ended = time.time() if state.word == RUNNING else max(_times(last_event, metrics.last), default=None)
    seconds = as_number(result.get("seconds"))
    if seconds is None and started is not None and ended is not None:
        seconds = as_number(max(0.0, ended - started))
    return RunSummary(
        folder, state, _model(folder), _count(result.get("steps"), metrics.last.get("step")),
        _count(result.get("epochs"), metrics.last.get("epoch")), seconds, started,
        best_evaluation(metrics.evaluations, result if "monitor" in result else _watched(folder)),
        last_shares(last_objects(folder / METRICS, LAST_BYTES)),
    )  # fmt: skip


def _watched(folder: Path) -> dict[str, Any]:
    """What a run that has no result yet was told to monitor, as a result says it; empty where that was left to it."""
    found = TRAINER.search(read_text(folder / CONFIG))
    try:  # two lines of it, as brim writes them: reading all of the YAML takes longer than everything else
        trainer = read_yaml("\n".join(MONITOR.findall(found[1])), CONFIG) if found is not None else None
    except ConfigError:
        return {}
    return watched_metric(trainer)


def _times(*lines: dict[str, Any]) -> list[float]:
    return [at for line in lines if (at := as_number(line.get("time")))]


def _count(*told: Any) -> int | None:
    """The first that is a number."""
    return next((int(number) for value in told if (number := as_number(value)) is not None), None)


def _model(folder: Path) -> str:
    """Its class, which runs of older versions have beside the arguments only."""
    for name in (ABOUT, MODEL):
        if isinstance(model := read_object(folder / name).get("model"), str):
            return model
    return ""


@dataclass(frozen=True)
class MetricsScan:
    """The curves of the evaluations, and the first and the last line that could be read."""

    evaluations: dict[str, Curve]
    first: dict[str, Any]
    last: dict[str, Any]


def scan_metrics(path: Path) -> MetricsScan:
    """Read every line, and take apart only those that count: a tenth of the time that reading all of it takes."""
    return MetricsScan(series_of(_telling_lines(path)), first_object(path), last_object(path))


def _telling_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Evaluations, and from which step to which a run went back to a checkpoint: what it evaluated there is void."""
    newest = 0
    for line in lines_of(path):
        if EVALUATED not in line and (found := STEP.search(line)) is not None:
            step = int(found[1])
            if step < newest:
                yield from ({"step": newest}, {"step": step})
            newest = step
            continue
        told = json_object(line) or {}
        at = as_number(told.get("step"))
        if at is not None:
            yield from ({"step": newest}, told)
            newest = int(at)
