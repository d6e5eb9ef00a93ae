"""Where the numbers of a run go beside metrics.jsonl: TensorBoard, a table, or whatever the user has."""

import csv
import difflib
import random
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from brim.errors import ConfigError
from brim.record.run_folder import RunFolder

CSV = "metrics.csv"
BOARD_SECONDS = 1.0  # TensorBoard takes 60 us a number, and nobody looks at more than one point a second
NAMES = ("tensorboard", "csv")
PLACES = ["time", "step", "epoch"]


@runtime_checkable
class Logger(Protocol):
    """What a logger of the user's own has; one with ``start(folder)`` hears before the first line where the run is."""

    def write(self, step: int, epoch: int, numbers: dict[str, float]) -> None: ...

    def close(self) -> None: ...


class TensorBoardLogger:
    """Scalars for TensorBoard, at most one of a name in a second."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writer: Any = None  # until there is a number: its import takes longer than all else before the first step
        self._shown: dict[str, float] = {}  # when each number was last written

    def write(self, step: int, epoch: int, numbers: dict[str, float]) -> None:
        if self._writer is None:
            self._writer = _summary_writer(self._folder)
        now = time.time()
        for name, value in numbers.items():
            if now - self._shown.get(name, 0.0) >= BOARD_SECONDS:
                self._shown[name] = now
                self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


def _summary_writer(folder: Path) -> Any:
    drawn = random.getstate()  # libraries draw when they are first imported, and this is in the middle of a run
    try:
        from torch.utils.tensorboard import SummaryWriter
    finally:
        random.setstate(drawn)
    return SummaryWriter(log_dir=str(folder))


class CsvLogger:
    """A table with a column for every number; a number that comes later adds a column to the whole file."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / CSV
        self._columns = self._read_columns()

    def write(self, step: int, epoch: int, numbers: dict[str, float]) -> None:
        new = [name for name in numbers if name not in self._columns]
        if new or not self.path.exists():
            self._add_columns(new)
        with self.path.open("a", newline="", encoding="utf-8") as file:
            row = {"time": time.time(), "step": step, "epoch": epoch, **numbers}
            csv.DictWriter(file, self._columns).writerow(row)

    def close(self) -> None:
        """Every line is on disk already."""

    def _read_columns(self) -> list[str]:
        """Of the run that this one continues."""
        if not self.path.exists():
            return list(PLACES)
        with self.path.open(newline="", encoding="utf-8") as file:
            return next(csv.reader(file), []) or list(PLACES)

    def _add_columns(self, names: Sequence[str]) -> None:
        rows: list[dict[str, str]] = []
        if self.path.exists():
            with self.path.open(newline="", encoding="utf-8") as file:
                rows = [{k: v for k, v in row.items() if k in self._columns} for row in csv.DictReader(file)]
        self._columns += names
        half_made = self.path.with_suffix(".part")
        with half_made.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, self._columns)
            writer.writeheader()
            writer.writerows(rows)
        half_made.replace(self.path)


def check_loggers(given: Any) -> None:
    """Refuse what cannot be a logger, before anything is written.

    >>> check_loggers(["csv"])
    """
    for one in _listed(given) or ():
        if isinstance(one, type):
            raise ConfigError(f"loggers= holds the class {one.__name__}; hand over an object of it")
        if isinstance(one, str) and one not in NAMES:
            near = difflib.get_close_matches(one, NAMES, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"use {', '.join(map(repr, NAMES))}, or an object"
            raise ConfigError(f"loggers={one!r} is not known; {hint}")
        if not isinstance(one, str) and not isinstance(one, Logger):
            raise ConfigError(
                f"loggers= holds a {type(one).__name__}, which has no write(step, epoch, numbers) and close()"
            )
        if one == "tensorboard" and not (_has_tensorboard() and _imports_tensorboard()):
            raise ConfigError("loggers='tensorboard' needs TensorBoard; pip install 'brim[tensorboard]'")


def make_loggers(given: Any, folder: RunFolder) -> list[Logger]:
    """Those that were asked for; None for TensorBoard where it is installed."""
    listed = _listed(given)
    if listed is None:
        listed = ["tensorboard"] if _has_tensorboard() else []
    return [_started(one, folder.path) for one in listed]


def _started(one: Any, folder: Path) -> Logger:
    if isinstance(one, str):
        return CsvLogger(folder) if one == "csv" else TensorBoardLogger(folder)
    if hasattr(one, "start"):
        one.start(folder)
    logger: Logger = one
    return logger


def _listed(given: Any) -> list[Any] | None:
    """None for what is usual; a single one is a list of one."""
    if given is None or given is True:
        return None
    if given is False:
        return []
    return list(given) if isinstance(given, list | tuple) else [given]


def _has_tensorboard() -> bool:
    """Whether it is installed: nothing is imported."""
    return all(find_spec(name) is not None for name in ("torch.utils.tensorboard", "tensorboard"))


def _imports_tensorboard() -> bool:
    try:
        import torch.utils.tensorboard  # noqa: F401
    except ImportError:
        return False
    return True
