"""The numbers of a run as curves: read back from metrics.jsonl, and thinned to what a chart can show."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

from brim.record.json_object import json_object

POINTS = 1000  # a chart is about this many pixels wide
TREND_POINTS = 150

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Point:
    """One number of a run; ``value`` is None where it was not a number, ``time`` is in unix seconds."""

    step: int
    value: float | None
    epoch: int
    time: float


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a jsonl file; a line that is not one (the last, of a run that was killed) is passed over."""
    try:
        text = path.read_bytes().decode("utf-8", errors="replace")
    except OSError:
        return []
    return [value for line in text.split("\n") if (value := json_object(line)) is not None]


def as_number(value: Any) -> float | None:
    """``value`` as a finite number, or None.

    >>> as_number(3), as_number("3"), as_number(True), as_number(float("nan"))
    (3.0, None, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:  # JSON knows integers that no float can hold
        return None


def series_of(lines: Iterable[dict[str, Any]]) -> dict[str, list[Point]]:
    """The curve of every number in ``lines``, by name, in the order of first appearance.

    A resumed run repeats the steps after its checkpoint: what it did the second time is what counts.
    """
    series: dict[str, list[Point]] = {}
    newest = 0
    for line in lines:
        at = as_number(line.get("step"))
        if at is None:
            continue
        step, epoch = int(at), int(as_number(line.get("epoch")) or 0)
        if step < newest:
            for points in series.values():
                _forget_from(points, step)
        newest = step
        for name, value in line.items():
            number = as_number(value)
            if name in ("time", "step", "epoch") or (number is None and value is not None):
                continue
            points = series.setdefault(name, [])
            _forget_from(points, step)
            points.append(Point(step, number, epoch, as_number(line.get("time")) or 0.0))
    return {name: points for name, points in series.items() if points}


def thin(points: Sequence[Point], limit: int = POINTS) -> list[Point]:
    """At most ``limit`` points that look the same: the ends, and of each stretch the lowest, the highest and a gap.

    >>> spike = [Point(step, float(step == 500), 1, 0.0) for step in range(1000)]
    >>> thinned = thin(spike, 10)
    >>> len(thinned) <= 10, max(point.value for point in thinned)
    (True, 1.0)
    """
    if len(points) <= limit:
        return list(points)
    has_gaps = any(point.value is None for point in points)
    inner = points[1:-1]
    kept = [points[0]]
    for bucket in _buckets(inner, (limit - 2) // (3 if has_gaps else 2)):
        kept.extend(_extremes(bucket))
    return [*kept, points[-1]]


def trend(points: Sequence[Point], count: int = TREND_POINTS) -> list[tuple[float, float]]:
    """(step, value) means of equal stretches: the course of a noisy curve. Empty for curves too short to need one."""
    numbers = [(point.step, point.value) for point in points if point.value is not None]
    if len(numbers) < 2 * count:
        return []
    return [
        (sum(step for step, _ in bucket) / len(bucket), sum(value for _, value in bucket) / len(bucket))
        for bucket in _buckets(numbers, count)
    ]


def _forget_from(points: list[Point], step: int) -> None:
    while points and points[-1].step >= step:
        points.pop()


def _extremes(bucket: Sequence[Point]) -> list[Point]:
    numbers = [(point.value, index) for index, point in enumerate(bucket) if point.value is not None]
    gaps = [index for index, point in enumerate(bucket) if point.value is None]
    chosen = {*gaps[:1], *(pick(numbers)[1] for pick in (min, max) if numbers)}
    return [bucket[index] for index in sorted(chosen)]


def _buckets(items: Sequence[T], count: int) -> list[Sequence[T]]:
    """``items`` in ``count`` stretches of nearly equal length."""
    edges = [len(items) * index // count for index in range(count + 1)]
    return [items[begin:end] for begin, end in pairwise(edges)]
