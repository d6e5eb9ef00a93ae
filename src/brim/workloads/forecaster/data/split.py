"""Where training ends and judging begins: borders in time, which no training window reaches across."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from brim.errors import ConfigError, DataError
from brim.workloads.forecaster.data.dates import as_dates
from brim.workloads.forecaster.data.series import Series, SeriesSet
from brim.workloads.forecaster.data.time_step import Times

SPLITS = ("train", "validation", "test")
SHARES = (0.7, 0.1, 0.2)
HOW = (
    "write shares [0.7, 0.1, 0.2], numbers of steps [8640, 2880, 2880], or two dates at which validation and test begin"
)
Split = Sequence[float] | Sequence[str] | None


@dataclass(frozen=True)
class Borders:
    """The first step of a series that is validation's, the first that is the test's, and where that ends."""

    validation: int
    test: int
    end: int


def find_borders(found: SeriesSet, split: Split, lookback: int, horizon: int) -> list[Borders]:
    """The borders of each series. Series with dates share them: no training value is later than what is judged.

    Series whose steps are only counted have no common clock, and each is cut by itself.
    """
    if found.has_dates:
        line = (
            found.series[0].times
            if len(found.series) == 1
            else np.unique(np.concatenate([one.times for one in found.series]))
        )
        if _are_dates(split):
            return _by_dates(found.series, split, line)
        counts = _counts(len(line), split, lookback, horizon)
        at = [line[count] if count < len(line) else None for count in np.cumsum(counts)]
        return [_at_times(one, at) for one in found.series]
    if _are_dates(split):
        raise ConfigError(f"split={list(split or ())}: the series has no dates; {HOW}")
    return [Borders(*map(int, np.cumsum(_counts(len(one), split, lookback, horizon)))) for one in found.series]


def _are_dates(split: Split) -> bool:
    return split is not None and len(split) > 0 and all(not isinstance(part, int | float) for part in split)


def _counts(steps: int, split: Split, lookback: int, horizon: int) -> list[int]:
    """How many steps are training's, validation's and the test's."""
    if split is None:
        return _usual_counts(steps, lookback, horizon)
    parts: list[Any] = list(split)
    if len(parts) != 3 or any(
        isinstance(part, bool) or not isinstance(part, int | float) or part < 0 for part in parts
    ):
        raise ConfigError(f"split={parts} cannot be used; {HOW}")
    if all(float(part).is_integer() for part in parts) and sum(parts) > 1:
        if sum(parts) > steps:
            raise DataError(
                f"split={parts} asks for {int(sum(parts)):,} steps, and there are {steps:,}; make it smaller"
            )
        counts = [int(part) for part in parts]
    elif sum(parts) <= 1 + 1e-9 and parts[0] > 0:
        train, test = int(steps * parts[0]), int(steps * parts[2])
        whole = sum(parts) > 1 - 1e-9
        counts = [train, steps - train - test if whole else int(steps * parts[1]), test]
    else:
        raise ConfigError(f"split={parts} cannot be used: shares add up to 1; {HOW}")
    if counts[0] < 1 or counts[1] < 1:
        raise ConfigError(f"split={parts} leaves nothing to train on, or nothing to choose the best weights by; {HOW}")
    return counts


def _usual_counts(steps: int, lookback: int, horizon: int) -> list[int]:
    """70, 10 and 20 percent; of a short series less to judge by, down to a horizon each, so that training has one."""
    test, train = int(steps * SHARES[2]), int(steps * SHARES[0])
    validation = max(steps - train - test, horizon)
    room = max(2 * horizon, steps - lookback - horizon)  # beyond the one window that training needs
    validation = min(validation, max(horizon, room // 3))
    test = min(max(test, horizon), max(horizon, room - validation))
    return [max(0, steps - validation - test), min(validation, max(0, steps - test)), min(test, steps)]


def _at_times(series: Series, times: Sequence[Any]) -> Borders:
    return Borders(*(len(series) if time is None else int(np.searchsorted(series.times, time)) for time in times))


def _by_dates(several: Sequence[Series], split: Any, line: Times) -> list[Borders]:
    dates = as_dates([str(part) for part in split])
    if dates is None or len(dates) not in (2, 3) or (np.diff(dates) <= np.timedelta64(0)).any():
        raise ConfigError(f"split={[str(part) for part in split]} cannot be used: dates in ascending order; {HOW}")
    if dates[0] <= line[0] or dates[0] > line[-1]:
        raise DataError(f"split begins validation at {split[0]}, and the series goes from {line[0]} to {line[-1]}")
    ends = [dates[0], dates[1], dates[2] if len(dates) == 3 else None]
    return [_at_times(one, ends) for one in several]
