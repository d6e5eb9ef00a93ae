"""What the calendar says of a time, known for the future as well: hour, weekday, day of the month, month."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from brim.errors import ConfigError
from brim.workloads.forecaster.data.time_step import DAY, Times, TimeStep

FEATURES = ("hour", "weekday", "monthday", "yearday", "month")


def chosen_features(asked: str | bool | Sequence[str], step: TimeStep, has_dates: bool) -> tuple[str, ...]:
    """The names of the features: those asked for, or with ``"auto"`` those that differ from step to step.

    >>> chosen_features("auto", TimeStep("months", 1), has_dates=True)
    ('month',)
    """
    if asked is False or asked == ():
        return ()
    if asked == "auto" or asked is True:
        if not has_dates:
            return ()
        if step.kind == "months":
            return ("month",) if step.size < 12 else ()
        if step.kind == "fixed" and step.size < DAY:
            return ("hour", "weekday", "yearday")
        return ("yearday",) if step.kind == "fixed" and step.size >= 7 * DAY else ("weekday", "monthday", "yearday")
    names = (asked,) if isinstance(asked, str) else tuple(asked)
    odd = next((name for name in names if name not in FEATURES), None)
    if odd is not None:
        raise ConfigError(f"calendar={odd!r} is none of {', '.join(FEATURES)}; auto takes those that fit the step")
    if not has_dates:
        raise ConfigError("calendar features need dates, and the series has none; name their column with time=")
    return names


def calendar_features(times: Times, names: Sequence[str]) -> np.ndarray[Any, Any]:
    """Of each time a sine and a cosine for each name: the last hour of a day is next to the first."""
    if not names:
        return np.zeros((len(times), 0))
    turns = np.stack([_turn(times, name) for name in names], axis=1) * 2 * np.pi
    return np.concatenate([np.sin(turns), np.cos(turns)], axis=1)


def _turn(times: Times, name: str) -> Any:
    """How much of the hand's way around is done, from 0 to 1."""
    day, month, year = (times.astype(f"datetime64[{unit}]") for unit in "DMY")
    if name == "hour":
        return (times - day) / np.timedelta64(1, "D")
    if name == "weekday":
        return ((day.astype(np.int64) + 3) % 7) / 7
    if name == "monthday":
        return (day - month.astype("datetime64[D]")).astype(np.int64) / 31
    if name == "yearday":
        return (day - year.astype("datetime64[D]")).astype(np.int64) / 366
    return (month - year.astype("datetime64[M]")).astype(np.int64) / 12
