"""What a run folder says about its run, read back."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from brim.record.json_object import json_object
from brim.record.run_folder import ABOUT, CONFIG, EVENTS, MACHINE, METRICS, MODEL, RESULT, RunFolder
from brim.record.series import Point, read_lines, series_of


@dataclass(frozen=True)
class RunRecord:
    """A run, as its folder tells it. Every part may be empty: a run can end before it has written it."""

    name: str
    config: str
    model: dict[str, Any]
    series: dict[str, list[Point]]
    events: list[dict[str, Any]]
    machine: dict[str, Any]
    result: dict[str, Any]
    about: dict[str, Any] = field(default_factory=dict)
    folder: str = ""  # where it was read
    is_resumable: bool = False


def read_run(folder: RunFolder) -> RunRecord:
    """Read the run folder; what is missing or half-written is empty.

    >>> read_run(RunFolder(Path("nowhere/run-1"))).name
    'run-1'
    """
    path = folder.path
    return RunRecord(
        name=path.resolve().name,
        config=_text(path / CONFIG),
        model=_object(path / MODEL),
        series=series_of(read_lines(path / METRICS)),
        events=read_lines(path / EVENTS),
        machine=_object(path / MACHINE),
        result=_object(path / RESULT),
        about=_object(path / ABOUT),
        folder=str(path),
        is_resumable=any(folder.checkpoints.glob("step-*")),
    )


def _object(path: Path) -> dict[str, Any]:
    return json_object(_text(path)) or {}


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8", errors="replace")
    except OSError:
        return ""
