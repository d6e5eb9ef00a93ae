"""Numbers of a run as a table, ``metrics.csv``."""

import csv
import time
from collections.abc import Sequence
from pathlib import Path

from brim.whole_files import written_aside

CSV = "metrics.csv"
PLACES = ["time", "step", "epoch"]


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
        with written_aside(self.path) as aside, aside.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, self._columns)
            writer.writeheader()
            writer.writerows(rows)
