"""One number of a run over its steps: as it was written while it is short, else the extremes of equal stretches."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from brim.record.curves.distribution import Distribution

STRETCHES = 400  # a chart is about this many pixels wide, or twice as many
TREND_STRETCHES = 150


@dataclass(frozen=True, slots=True)
class Point:
    """One number of a run; ``value`` is None where it was not a number, ``time`` is in unix seconds."""

    step: int
    value: float | None
    epoch: int
    time: float


@dataclass(slots=True)
class Stretch:
    """Neighbouring points: what a chart needs of them."""

    first: Point
    last: Point
    low: Point | None  # of those that are numbers
    high: Point | None
    gap: Point | None  # the first that is none
    points: int  # how many they were
    numbers: int  # how many of these are numbers; the sums are over them
    steps: float
    values: float

    @classmethod
    def of(cls, point: Point) -> "Stretch":
        if point.value is None:
            return cls(point, point, None, None, point, 1, 0, 0, 0.0)
        return cls(point, point, point, point, None, 1, 1, point.step, point.value)

    def add(self, point: Point) -> None:
        """Take in the point that follows: what `join` does, for the one case that comes very often."""
        self.last = point
        self.points += 1
        value = point.value
        if value is None:
            self.gap = self.gap or point
            return
        if self.low is None or value < _value(self.low):
            self.low = point
        if self.high is None or value > _value(self.high):
            self.high = point
        self.numbers += 1
        self.steps += point.step
        self.values += value

    def join(self, after: "Stretch") -> None:
        """Take in the stretch that follows; of equal values the earlier one stays."""
        self.last = after.last
        self.low = min((one for one in (self.low, after.low) if one), key=_value, default=None)
        self.high = max((one for one in (self.high, after.high) if one), key=_value, default=None)
        self.gap = self.gap or after.gap
        self.points += after.points
        self.numbers += after.numbers
        self.steps += after.steps
        self.values += after.values

    def kept(self) -> list[Point]:
        """The lowest, the highest and a gap, in their order."""
        found = {point.step: point for point in (self.low, self.high, self.gap) if point is not None}
        return [found[step] for step in sorted(found)]

    def until(self, step: int) -> "Stretch":
        """What is known of it before ``step``: its first point, and its extremes where they are before."""
        known = {point.step: point for point in (self.first, *self.kept()) if point.step < step}
        first, *others = (Stretch.of(known[at]) for at in sorted(known))
        for other in others:
            first.join(other)
        first.points = self.points  # as full as it was, so that stretches stay of one length
        return first


class Curve:
    """Takes in points in the order of their steps. Memory is bounded: long curves are kept as ``STRETCHES`` stretches.

    ``spread``, where there is one, counts all values ever written, also those of steps that were made once more.

    >>> spike = Curve.of(Point(step, float(step == 5_000), 1, 0.0) for step in range(1, 10_001))
    >>> len(spike.points) < 1000, max(point.value for point in spike.points), spike.is_thinned()
    (True, 1.0, True)
    """

    def __init__(self, spread: Distribution | None = None, stretches: int = STRETCHES) -> None:
        self.spread = spread
        self._most = stretches
        self._stretches: list[Stretch] = []
        self._length = 1  # points of a stretch

    @classmethod
    def of(cls, points: Iterable[Point], stretches: int = STRETCHES) -> "Curve":
        made = cls(Distribution(), stretches)
        for point in points:
            made.add(point)
        return made

    def add(self, point: Point) -> None:
        """The next point; one of a step that is there already replaces it and what came after."""
        if self._stretches and self._stretches[-1].last.step >= point.step:
            self.forget_from(point.step)
        newest = self._stretches[-1] if self._stretches else None
        if self.spread is not None and point.value is not None:
            self.spread.add(point.value, point.step, point.step - (newest.last.step if newest else 0))
        if newest is not None and newest.points < self._length:
            newest.add(point)
            return
        self._stretches.append(Stretch.of(point))
        if len(self._stretches) > self._most:
            self._halve()

    def forget_from(self, step: int) -> None:
        """A run went back to a checkpoint: what it did there the second time is what counts.

        Exact for short curves. In a long one that goes back into the middle of a stretch, the first half of the stretch
        keeps those of its extremes that are known to be in it.
        """
        while self._stretches and self._stretches[-1].first.step >= step:
            self._stretches.pop()
        if self._stretches and self._stretches[-1].last.step >= step:
            self._stretches[-1] = self._stretches[-1].until(step)

    @property
    def first(self) -> Point:
        return self._stretches[0].first

    @property
    def last(self) -> Point:
        return self._stretches[-1].last

    def __bool__(self) -> bool:
        return bool(self._stretches)

    def is_thinned(self, stretches: int = STRETCHES) -> bool:
        """Whether so many stretches leave points out."""
        return self._length > 2 or len(self._stretches) > stretches  # of two points both are kept

    @property
    def points(self) -> list[Point]:
        """The ends, and of each stretch the lowest, the highest and a gap."""
        return _shown(self._stretches)

    def points_in(self, stretches: int) -> list[Point]:
        """The same of at most so many stretches: one of very many curves on a page has less room."""
        few = len(self._stretches) <= stretches
        return _shown(self._stretches if few else list(map(_joined, _groups(self._stretches, stretches))))

    @property
    def values(self) -> list[float]:
        """Those of the points that are numbers."""
        return [point.value for point in self.points if point.value is not None]

    def means(self, count: int) -> list[tuple[float, float]]:
        """(step, value) of at most ``count`` equal stretches: the mean of the numbers in each."""
        whole = [stretch for stretch in self._stretches if stretch.numbers]
        return [_mean(some) for some in _groups(whole, min(count, len(whole)))]

    def trend(self, count: int = TREND_STRETCHES) -> list[tuple[float, float]]:
        """The course of a noisy curve. Empty for curves too short to need one."""
        return self.means(count) if sum(stretch.numbers for stretch in self._stretches) >= 2 * count else []

    def _halve(self) -> None:
        """Twice as many points a stretch."""
        self._length *= 2
        pairs = list(zip(self._stretches[::2], self._stretches[1::2], strict=False))
        odd = self._stretches[2 * len(pairs) :]
        for one, after in pairs:
            one.join(after)
        self._stretches = [*(one for one, _ in pairs), *odd]


def _shown(stretches: Sequence[Stretch]) -> list[Point]:
    if not stretches:
        return []
    extremes = [point for stretch in stretches for point in stretch.kept()]
    kept = {point.step: point for point in (stretches[0].first, *extremes, stretches[-1].last)}
    return [kept[step] for step in sorted(kept)]


def _joined(stretches: Sequence[Stretch]) -> Stretch:
    whole = replace(stretches[0])
    for stretch in stretches[1:]:
        whole.join(stretch)
    return whole


def _value(point: Point) -> float:
    assert point.value is not None
    return point.value


def _mean(stretches: Sequence[Stretch]) -> tuple[float, float]:
    numbers = sum(stretch.numbers for stretch in stretches)
    return sum(stretch.steps for stretch in stretches) / numbers, sum(s.values for s in stretches) / numbers


def _groups(stretches: Sequence[Stretch], count: int) -> list[Sequence[Stretch]]:
    """``count`` groups of nearly equal length."""
    edges = [len(stretches) * index // count for index in range(count + 1)] if count else []
    return [stretches[begin:end] for begin, end in pairwise(edges)]
