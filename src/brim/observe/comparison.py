"""Two runs side by side: which settings differ, what came of each, how fast they were and what memory they took."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from brim.errors import ConfigError, RunFolderError
from brim.observe.bounded_files import is_endless
from brim.observe.run_summary import RunSummary, summarize
from brim.record.json_object import flat
from brim.record.key_numbers import EVALUATION, is_higher_better, key_numbers
from brim.record.plain_yaml import read_yaml
from brim.record.run_folder import ABOUT, CONFIG, EVENTS, MACHINE, METRICS, MODEL, PLAN, RESULT, RunFolder
from brim.record.run_record import RunRecord, read_run
from brim.record.series import as_number, numbers_in

NOT_SETTINGS = ("command", "trainer.run_dir")  # which differ between any two runs
LOWER, HIGHER = "lower", "higher"  # is better
FASTER_IS = {"samples/s": HIGHER, "step ms": LOWER}


@dataclass(frozen=True)
class Setting:
    """A setting that differs; None where a run has none of that name."""

    name: str
    a: Any
    b: Any


@dataclass(frozen=True)
class Number:
    """A number of both runs. ``better`` is "a" or "b", empty where they are equal, one is missing, or nothing is."""

    name: str
    a: float | None
    b: float | None
    better: str = ""

    @property
    def ratio(self) -> float | None:
        """Of the second run to the first."""
        return None if not self.a or self.b is None else self.b / self.a


@dataclass(frozen=True)
class Comparison:
    """What differs, and the numbers of both; ``notes`` say what could not be read."""

    a: RunSummary
    b: RunSummary
    settings: list[Setting]
    metrics: list[Number]
    pace: list[Number]
    notes: list[str]

    @property
    def numbers(self) -> list[Number]:
        """Those that at least one of the runs has."""
        return [row for row in (*self.metrics, *self.pace) if row.a is not None or row.b is not None]

    def as_json(self) -> dict[str, Any]:
        numbers = {"metrics": self.metrics, "pace": self.pace}
        return {
            "a": self.a.as_json(), "b": self.b.as_json(), "settings": [asdict(setting) for setting in self.settings],
            **{name: [{**asdict(one), "ratio": one.ratio} for one in rows] for name, rows in numbers.items()},
            "notes": self.notes,
        }  # fmt: skip


def compare_runs(a: Path, b: Path) -> Comparison:
    """Read both runs, finished or not."""
    return compare_records(a, read_record(a), b, read_record(b))


def compare_records(a: Path, of_run_a: RunRecord, b: Path, of_run_b: RunRecord) -> Comparison:
    """The same of runs that were read already."""
    records = (of_run_a, of_run_b)
    notes: list[str] = []
    of_a, of_b = (settings_of(record, notes) for record in records)
    names = [*of_a, *(name for name in of_b if name not in of_a)]
    settings = [Setting(name, of_a.get(name), of_b.get(name)) for name in names if _differ(name, of_a, of_b)]
    summaries = (summarize(a), summarize(b))
    waited = _number("data wait", [(run.shares or {}).get("data_wait") for run in summaries], LOWER)
    return Comparison(*summaries, settings, _metrics(*records), [*_pace(*records), waited], notes)


def read_record(folder: Path) -> RunRecord:
    """The whole run. What is read would never end from a pipe or a device, so those are refused."""
    for name in (METRICS, EVENTS, CONFIG, MODEL, MACHINE, ABOUT, RESULT, PLAN):
        path = folder / name
        if is_endless(path):
            raise RunFolderError(
                f"{path} is no file, so {folder} is not what a run left; remove it or name another run"
            )
    return read_run(RunFolder.open(folder))


def settings_of(run: RunRecord, notes: list[str]) -> dict[str, Any]:
    """Every setting by its dotted name, then what the run is about and the machine it was on."""
    try:
        told = read_yaml(run.config, f"{CONFIG} of {run.name}")
    except ConfigError as error:
        notes.append(str(error))
        told = None
    found = {**flat(told if isinstance(told, Mapping) else {}), **flat({**run.about, **run.machine})}
    return {name: value for name, value in found.items() if name not in NOT_SETTINGS}


def _differ(name: str, a: dict[str, Any], b: dict[str, Any]) -> bool:
    """Whether a setting does; True and 1 are not the same one, and one that there is not yet is None."""
    return type(a.get(name)) is not type(b.get(name)) or a.get(name) != b.get(name)


def _metrics(a: RunRecord, b: RunRecord) -> list[Number]:
    """Of the results, where a run has one; and the best evaluation of each by every metric that was evaluated."""
    rows = []
    told = [numbers_in(run.result.get("metrics")) for run in (a, b)]
    for name in [*told[0], *(name for name in told[1] if name not in told[0])]:
        rows.append(_number(name, [row.get(name) for row in told], _direction(name, a, b)))
    evaluated = [name for name in a.series if name.startswith(EVALUATION)]
    evaluated += [name for name in b.series if name.startswith(EVALUATION) and name not in a.series]
    for name in evaluated:
        direction = _direction(name.removeprefix(EVALUATION), a, b)
        best = [_best(run, name, direction) for run in (a, b)]
        rows.append(_number(f"{'last' if direction is None else 'best'} {name}", best, direction))
    return rows


def _pace(a: RunRecord, b: RunRecord) -> list[Number]:
    keys = [key_numbers(run.series, run.events, run.result) for run in (a, b)]
    losses = [run.series["loss"].values if "loss" in run.series else [] for run in (a, b)]
    last = [values[-1] if values else None for values in losses]
    memory = [as_number((key["peak_memory"] or {}).get("bytes")) for key in keys]
    rows = [("steps", "steps"), ("epochs", "epochs"), ("seconds", "seconds"),
            ("samples/s", "samples_per_second"), ("step ms", "step_ms")]  # fmt: skip
    found = [_number(shown, [key[name] for key in keys], FASTER_IS.get(shown)) for shown, name in rows]
    return [*found, _number("peak memory", memory, LOWER), _number("last training loss", last, LOWER)]


def _number(name: str, pair: Sequence[float | None], direction: str | None) -> Number:
    a, b = pair
    if a is None or b is None or a == b or direction is None:
        return Number(name, a, b)
    return Number(name, a, b, "a" if (a < b) == (direction == LOWER) else "b")


def _direction(metric: str, a: RunRecord, b: RunRecord) -> str | None:
    """As a run says of what it monitors, else by the words of the name; None where nothing tells."""
    higher = is_higher_better(metric)
    for run in (a, b):
        if run.result.get("monitor") == metric and isinstance(told := run.result.get("higher_is_better"), bool):
            higher = told
    return None if higher is None else HIGHER if higher else LOWER


def _best(run: RunRecord, name: str, direction: str | None) -> float | None:
    """The last one, where it is not known which is best."""
    values = run.series[name].values if name in run.series else []
    if direction is None:
        return values[-1] if values else None
    return (min if direction == LOWER else max)(values, default=None)
