"""The numbers of a run as curves: read back from metrics.jsonl, one for each name."""

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from brim.record.curves.curve import Curve, Point
from brim.record.curves.distribution import Distribution
from brim.record.curves.growing_lines import GrowingLines

__all__ = ["Point", "Series", "as_number", "numbers_in", "read_lines", "series_of"]

NOT_NUMBERS = ("time", "step", "epoch")  # but where and when the numbers of a line belong
PACE = ("samples_per_second", "step_ms")  # of which one wants to know how they are spread
SHARE = "share/"  # of the time of a step, before its name
MOST_STEPS = 2**53  # more are no whole numbers in a browser, and no run has so many


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a jsonl file; a line that is not one (the last, of a run that was killed) is passed over."""
    return list(GrowingLines(path).new())


def as_number(value: Any) -> float | None:
    """``value`` as a finite number, or None.

    >>> as_number(3), as_number("3"), as_number(True), as_number(float("nan"))
    (3.0, None, None, None)
    """
    if type(value) is float:  # nearly all of them
        return value if math.isfinite(value) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:  # JSON knows integers that no float can hold
        return None


def numbers_in(row: Any) -> dict[str, float]:
    """The finite numbers of a row of metrics, by name; none of what is no such row.

    >>> numbers_in({"loss": 0.5, "note": "good"}), numbers_in(None)
    ({'loss': 0.5}, {})
    """
    found = {str(name): as_number(value) for name, value in row.items()} if isinstance(row, dict) else {}
    return {name: value for name, value in found.items() if value is not None}


class Series:
    """The curve of every number of a run, by name, in the order of first appearance.

    A resumed run repeats the steps after its checkpoint: what it did the second time is what counts.
    """

    def __init__(self) -> None:
        self._curves: dict[str, Curve] = {}
        self._newest = 0

    def add(self, line: Mapping[str, Any]) -> None:
        """One line of metrics.jsonl."""
        at = as_number(line.get("step"))
        if at is None or not 0 <= at <= MOST_STEPS:
            return
        step, epoch = int(at), int(as_number(line.get("epoch")) or 0)
        time = as_number(line.get("time")) or 0.0
        if step < self._newest:
            for known in self._curves.values():
                known.forget_from(step)
        self._newest = step
        for name, value in line.items():
            number = as_number(value)
            if (number is None and value is not None) or name in NOT_NUMBERS:
                continue
            if (curve := self._curves.get(name)) is None:
                curve = self._curves[name] = Curve(Distribution() if name in PACE else None)
            curve.add(Point(step, number, epoch, time))

    def by_name(self) -> dict[str, Curve]:
        return {name: curve for name, curve in self._curves.items() if curve}


def series_of(lines: Iterable[Mapping[str, Any]]) -> dict[str, Curve]:
    """The curves of ``lines``.

    >>> series_of([{"step": 1, "epoch": 1, "loss": 0.5}])["loss"].values
    [0.5]
    """
    series = Series()
    for line in lines:
        series.add(line)
    return series.by_name()
