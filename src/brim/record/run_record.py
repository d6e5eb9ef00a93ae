"""What a run folder says about its run, read back."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from brim.record.curves.curve import Curve
from brim.record.curves.growing_lines import GrowingLines
from brim.record.event_list import FIRST, LAST, Event, shortened
from brim.record.json_object import json_object
from brim.record.run_folder import ABOUT, CONFIG, EVENTS, MACHINE, METRICS, MODEL, PLAN, RESULT, RunFolder
from brim.record.series import Series, as_number

WAIT_SHARE = "feed/wait_share"  # of a step that consists of one batch; of several, so many times as much


@dataclass(frozen=True)
class Checkpoint:
    """One that is in the run folder, and when it was written (unix seconds)."""

    step: int
    time: float


@dataclass(frozen=True)
class RunRecord:
    """A run, as its folder tells it. Every part may be empty: a run can end before it has written it."""

    name: str
    config: str
    model: dict[str, Any]
    series: dict[str, Curve]
    events: list[Event]
    machine: dict[str, Any]
    result: dict[str, Any]
    about: dict[str, Any] = field(default_factory=dict)
    plan: dict[str, Any] = field(default_factory=dict)
    checkpoints: list[Checkpoint] = field(default_factory=list)
    folder: str = ""  # where it was read
    events_left_out: int = 0  # of a very long list

    @property
    def is_resumable(self) -> bool:
        return bool(self.checkpoints)


class RunReader:
    """Reads a run again and again while it goes on: of the files that grow, only what is new."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self._lines = GrowingLines(folder.location / METRICS)
        self._new_events = GrowingLines(folder.location / EVENTS)
        self._series = Series()
        self._events: list[Event] = []
        self._events_left_out = 0

    def read(self) -> RunRecord:
        """The run as it stands; what is missing or half-written is empty."""
        self._read_lines()
        self._read_events()
        path = self.folder.location
        return RunRecord(
            name=path.resolve().name,
            config=_text(path / CONFIG),
            model=_object(path / MODEL),
            series=self._series.by_name(),
            events=self._events,
            machine=_object(path / MACHINE),
            result=_object(path / RESULT),
            about=_object(path / ABOUT),
            plan=_object(path / PLAN),
            checkpoints=checkpoints_in(path / self.folder.checkpoints.name),
            folder=str(self.folder.path),
            events_left_out=self._events_left_out,
        )

    def _read_lines(self) -> None:
        if self._lines.has_restarted():
            self._series = Series()
        for line in self._lines.new():
            self._series.add(with_wait_share(line))

    def _read_events(self) -> None:
        if self._new_events.has_restarted():
            self._events, self._events_left_out = [], 0
        self._events.extend(self._new_events.new())
        if len(self._events) > 2 * (FIRST + LAST):
            self._events, left_out = shortened(self._events)
            self._events_left_out += left_out


def read_run(folder: RunFolder) -> RunRecord:
    """Read the run folder once.

    >>> read_run(RunFolder(Path("nowhere/run-1"))).name
    'run-1'
    """
    return RunReader(folder).read()


def with_wait_share(line: Mapping[str, Any]) -> Mapping[str, Any]:
    """The line, with the share of a step that the loop stood waiting for one batch, where the line tells it.

    Taken line by line: a line without ``feed/wait_ms`` is one in which nothing was waited for.

    >>> with_wait_share({"step": 1, "step_ms": 10.0, "feed/wait_ms": 2.0})["feed/wait_share"]
    0.2
    """
    step = as_number(line.get("step_ms"))
    if not step or step < 0 or not any(name.startswith("feed/") for name in line):
        return line
    return {**line, WAIT_SHARE: (as_number(line.get("feed/wait_ms")) or 0.0) / step}


def checkpoints_in(folder: Path) -> list[Checkpoint]:
    """Those that are kept there, by their steps."""
    found = []
    for path in folder.glob("step-*"):
        try:
            found.append(Checkpoint(int(path.name.removeprefix("step-")), path.stat().st_mtime))
        except (OSError, ValueError):  # gone meanwhile, or somebody else's
            continue
    return sorted(found, key=lambda one: one.step)


def _object(path: Path) -> dict[str, Any]:
    return json_object(_text(path)) or {}


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8", errors="replace")
    except OSError:
        return ""
