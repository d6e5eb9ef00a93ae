"""Trainings that go on now, found by their run folders and the processes that hold those."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from brim.observe.bounded_files import is_there, last_objects, lines_of, read_object
from brim.observe.last_shares import last_shares
from brim.observe.run_search import find_runs
from brim.observe.run_state import RUNNING, state_of
from brim.record.json_object import json_object
from brim.record.run_folder import ABOUT, EVENTS, METRICS
from brim.record.run_lock import LOCK, machine_id
from brim.record.series import as_number
from brim.sensors.processes import open_files, python_processes

SEARCH_SECONDS = 5.0  # between searches for runs that have begun
RANKS = "ranks"
FORECAST = b'"forecast"'
MEMORY = ("memory_reserved", "memory_process")


@dataclass(frozen=True)
class RunningJob:
    """A training that goes on, by the last lines of its metrics.jsonl; None where they do not say.

    ``memory`` is what torch has reserved on a GPU, or what the process holds where there is none; ``forecast`` is what
    torch was forecast to reserve. Both in bytes. ``quiet`` is how many seconds ago the last number was written.
    ``shares`` are those of the time of the last steps.
    ``host`` is the machine that a run on a shared disk goes on on, empty for this one; ``processes`` are of this one.
    """

    folder: Path
    processes: tuple[int, ...]
    model: str = ""
    step: int | None = None
    planned_steps: int | None = None
    epoch: int | None = None
    loss: float | None = None
    steps_per_second: float | None = None
    samples_per_second: float | None = None
    memory: int | None = None
    forecast: int | None = None
    quiet: float | None = None
    host: str = ""
    shares: dict[str, float] | None = None

    @property
    def seconds_left(self) -> float | None:
        """By the speed of the last steps, without evaluations and checkpoints."""
        if self.planned_steps is None or self.step is None or not self.steps_per_second:
            return None
        return max(0, self.planned_steps - self.step) / self.steps_per_second

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "folder": str(self.folder), "seconds_left": self.seconds_left}


class JobSearch:
    """Finds the jobs below some folders, and those of this user's other processes, wherever their folders are."""

    def __init__(self, places: Sequence[Path], clock: Callable[[], float] = time.monotonic) -> None:
        self.places = list(places)
        self._clock = clock
        self._searched: float | None = None
        self._folders: dict[Path, set[int]] = {}

    def read(self) -> list[RunningJob]:
        """Those that go on now; new ones are looked for every few seconds."""
        now = self._clock()
        if self._searched is None or now - self._searched >= SEARCH_SECONDS:
            self._folders, self._searched = self._search(), now
        jobs = [look_at(folder, processes) for folder, processes in self._folders.items()]
        return [job for job in jobs if job is not None]

    def _search(self) -> dict[Path, set[int]]:
        found: dict[Path, set[int]] = {}
        for place in self.places:
            for folder in find_runs(place):
                if is_there(folder / LOCK):
                    found.setdefault(folder.resolve(), set())
        for pid in python_processes():
            for file in open_files(pid):
                if (run := run_of(file)) is not None:
                    found.setdefault(run, set()).add(pid)
        return found


def run_of(file: Path) -> Path | None:
    """The run folder that a file of its journal belongs to; None for any other file.

    >>> run_of(Path("/runs/a/ranks/rank-1/events.jsonl")), run_of(Path("/etc/passwd"))
    (PosixPath('/runs/a'), None)
    """
    if file.name not in (EVENTS, METRICS):
        return None
    folder = file.parent
    return folder.parent.parent if folder.parent.name == RANKS else folder


def look_at(folder: Path, processes: set[int]) -> RunningJob | None:
    """The job in a folder; None where no process trains there any more."""
    state = state_of(folder, {}, {})
    if state.word != RUNNING or state.owner is None:
        return None
    about = read_object(folder / ABOUT)
    lines = last_objects(folder / METRICS)
    step_ms, planned, loss = _newest(lines, "step_ms"), as_number(about.get("planned_steps")), _newest(lines, "loss")
    wrote = _newest(lines, "time")
    memory = next((size for name in MEMORY if (size := _newest(lines, name)) is not None), None)
    is_here = state.owner.machine == machine_id()
    local = processes | {state.owner.process} if is_here else processes  # numbers of another machine mean others here
    return RunningJob(
        folder, tuple(sorted(local)), str(about.get("model") or ""),
        _as_int(_newest(lines, "step")), _as_int(planned), _as_int(_newest(lines, "epoch")), loss,
        1e3 / step_ms if step_ms else None, _newest(lines, "samples_per_second"), _as_int(memory),
        _forecast(folder), None if wrote is None else max(0.0, time.time() - wrote),
        "" if is_here else state.owner.host, last_shares(lines),
    )  # fmt: skip


def _newest(lines: list[dict[str, Any]], name: str) -> float | None:
    """The last number of this name."""
    return next((number for line in reversed(lines) if (number := as_number(line.get(name))) is not None), None)


def _forecast(folder: Path) -> int | None:
    """Of the last plan that the run told of."""
    told = None
    for line in lines_of(folder / EVENTS):
        if FORECAST in line and (event := json_object(line)) is not None:
            made = event.get("forecast")
            reserved = as_number(made.get("reserved")) if isinstance(made, dict) else None
            told = reserved if reserved is not None else told
    return _as_int(told)


def _as_int(number: float | None) -> int | None:
    return None if number is None else int(number)
