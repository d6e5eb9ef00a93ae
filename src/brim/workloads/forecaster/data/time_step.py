"""The step of a series: an hour, three months, a weekday; where rows lie on its grid, and what comes next."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from brim.errors import DataError

Times = np.ndarray[Any, Any]
MICROSECOND = np.timedelta64(1, "us")
SECOND, DAY = 1_000_000, 86_400_000_000
UNITS = ((7 * DAY, "week"), (DAY, "day"), (3600 * SECOND, "hour"), (60 * SECOND, "minute"), (SECOND, "second"))
MOST_GAPS = 2.0  # steps from a row to the next, on average: from there on the step is not what it seems
SEASONS = {DAY: 7, 7 * DAY: 52}


@dataclass(frozen=True)
class TimeStep:
    """``kind`` is ``"fixed"`` (``size`` in microseconds), ``"numbers"`` (of steps that are counted), ``"months"``,
    ``"weekdays"``, or ``"rows"`` where times have no common step: rows are then steps, ``size`` the median distance.

    ``day`` is the day of the month of a step in months; 31 for its last.
    """

    kind: str
    size: int
    day: int = 1

    def __str__(self) -> str:
        if self.kind == "weekdays":
            return "weekday"
        if self.kind == "months":
            return "year" if self.size == 12 else _counted(self.size, "month")
        if self.kind in ("rows", "numbers"):
            return _counted(self.size, "step") if self.kind == "numbers" else "row"
        unit, name = next(((unit, name) for unit, name in UNITS if self.size % unit == 0), (1, "microsecond"))
        return _counted(self.size // unit, name)

    def season(self) -> int:
        """How many steps a season usually has: a day of hours, a week of days, a year of months; 1 where none is."""
        if self.kind == "months":
            return max(1, 12 // self.size)
        if self.kind == "weekdays":
            return 5
        if self.kind in ("rows", "numbers"):
            return 1
        if self.size < DAY and DAY % self.size == 0:
            per_day = DAY // self.size
            return per_day if per_day <= 1440 else 60
        return SEASONS.get(self.size, 1)

    def positions(self, times: Times) -> Times | None:
        """The number of each time on the grid that begins with the first of them; None where one lies off it."""
        if self.kind == "rows":
            return np.arange(len(times))
        if self.kind == "months":
            found = _month_numbers(times)
            return None if not self._is_of_day(times) else _whole(found - found[0], self.size)
        if self.kind == "weekdays":
            return _weekday_numbers(times) - _weekday_numbers(times[:1])
        return _whole(_numbers(times - times[0]), self.size)

    def is_of(self, several: Sequence[Times]) -> bool:
        """Whether all of these ascending times lie on the grid of this step, and most of its places are taken."""
        if not several or (several[0].dtype.kind == "M") == (self.kind == "numbers") or self.kind == "rows":
            return False
        if self.kind == "weekdays" and any(_on_weekend(times).any() for times in several):
            return False
        found = [self.positions(times) for times in several if len(times)]
        positions = [one for one in found if one is not None]
        steps, gaps = sum(int(one[-1]) for one in positions), sum(len(one) - 1 for one in positions)
        # Every other step, all through: that is a step of its own.
        return len(positions) == len(found) and (steps < MOST_GAPS * gaps or not gaps)

    def after(self, last: Any, steps: int) -> Times:
        """The times of the steps that follow ``last``."""
        if self.kind == "months":
            months = np.datetime64(last, "M") + self.size * np.arange(1, steps + 1)
            clock = np.datetime64(last, "us") - np.datetime64(last, "D")
            first, length = months.astype("datetime64[D]"), _month_lengths(months)
            return np.asarray((first + np.minimum(self.day, length) - 1).astype("datetime64[us]") + clock)
        if self.kind == "weekdays":
            day = np.datetime64(last, "D")
            days = np.busday_offset(day, np.arange(1, steps + 1), roll="forward")
            return np.asarray(days.astype("datetime64[us]") + (np.datetime64(last, "us") - day))
        distance = self.size * np.arange(1, steps + 1)
        return np.asarray(last + (distance * MICROSECOND if np.asarray(last).dtype.kind == "M" else distance))

    def _is_of_day(self, times: Times) -> bool:
        return bool((_days(times) == np.minimum(self.day, _month_lengths(times.astype("datetime64[M]")))).all())


def find_step(several: Sequence[Times]) -> TimeStep:
    """The step that these ascending times have in common.

    >>> str(find_step([np.array(["2024-01-31", "2024-02-29", "2024-03-31"], dtype="datetime64[us]")]))
    'month'
    """
    gaps = [_numbers(np.diff(times)) for times in several if len(times) > 1]
    if not gaps:
        raise DataError("no series has two rows; there is nothing to forecast from")
    joined = np.concatenate(gaps)
    if several[0].dtype.kind == "M" and (step := _calendar_step(several, joined)) is not None:
        return step
    sizes, counts = np.unique(joined, return_counts=True)
    step = TimeStep("fixed" if several[0].dtype.kind == "M" else "numbers", int(sizes[counts.argmax()]))
    return step if step.is_of(several) else TimeStep("rows", max(1, int(np.median(joined))))


def _calendar_step(several: Sequence[Times], gaps: Times) -> TimeStep | None:
    """Months of 28 to 31 days, and weeks without a weekend."""
    typical = np.median(gaps)
    times = np.concatenate(list(several))
    if typical >= 28 * DAY:
        days = _days(times)
        last = _month_lengths(times.astype("datetime64[M]"))
        day = int(days.max()) if (days == np.minimum(days.max(), last)).all() else 0
        if not day:
            return None
        months = np.concatenate([np.diff(_month_numbers(one)) for one in several if len(one) > 1])
        size = int(np.gcd.reduce(months))
        # One day of every month of a year: but four weeks are no month.
        return TimeStep("months", size, 31 if (days == last).all() else day) if size else None
    on_weekends = _on_weekend(times)
    same_clock = len(np.unique(times - times.astype("datetime64[D]"))) == 1
    if typical == DAY and same_clock and not on_weekends.any() and (gaps == 3 * DAY).any():
        return TimeStep("weekdays", 1)
    return None


def _numbers(distances: Times) -> Times:
    return np.asarray(distances // MICROSECOND if distances.dtype.kind == "m" else distances, dtype=np.int64)


def _whole(distances: Times, size: int) -> Times | None:
    return None if (distances % size).any() else np.asarray(distances // size)


def _month_numbers(times: Times) -> Times:
    return times.astype("datetime64[M]").astype(np.int64)


def _on_weekend(times: Times) -> Times:
    return np.asarray((times.astype("datetime64[D]").astype(np.int64) + 3) % 7 > 4)


def _weekday_numbers(times: Times) -> Times:
    return np.asarray(np.busday_count(np.datetime64("1970-01-05"), times.astype("datetime64[D]")))


def _days(times: Times) -> Times:
    first = times.astype("datetime64[M]").astype("datetime64[D]")
    return np.asarray((times.astype("datetime64[D]") - first).astype(np.int64) + 1)


def _month_lengths(months: Times) -> Times:
    first = months.astype("datetime64[M]")
    return np.asarray(((first + 1).astype("datetime64[D]") - first.astype("datetime64[D]")).astype(np.int64))


def _counted(count: int, name: str) -> str:
    return name if count == 1 else f"{count} {name}s"
