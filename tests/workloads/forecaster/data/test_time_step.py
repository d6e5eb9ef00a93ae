"""The step of a series: found, counted on, and gone on with."""

import numpy as np
import pandas as pd
import pytest

from brim.errors import DataError
from brim.workloads.forecaster.data.time_step import TimeStep, find_step


def times(freq, periods=40, start="2023-01-31"):
    return pd.date_range(start, periods=periods, freq=freq).to_numpy().astype("datetime64[us]")


@pytest.mark.parametrize(
    ("freq", "name", "season"),
    [
        ("h", "hour", 24), ("15min", "15 minutes", 96), ("D", "day", 7), ("W", "week", 52), ("B", "weekday", 5),
        ("MS", "month", 12), ("ME", "month", 12), ("QS", "3 months", 4), ("QE", "3 months", 4), ("YS", "year", 1),
        ("2D", "2 days", 1), ("s", "second", 60), ("4h", "4 hours", 6), ("100ms", "100000 microseconds", 60),
    ],
)  # fmt: skip
def test_steps_of_every_kind_are_found_and_gone_on_with(freq, name, season):
    all_times = times(freq, 50)
    step = find_step([all_times[:40]])
    assert (str(step), step.season()) == (name, season)
    assert step.after(all_times[39], 10).tolist() == all_times[40:].tolist()
    assert step.positions(all_times).tolist() == list(range(50))


@pytest.mark.parametrize("freq", ["h", "D", "MS", "ME", "B", "W"])
def test_missing_rows_leave_their_place_on_the_grid(freq):
    whole = times(freq)
    kept = np.delete(whole, [3, 4, 17])
    step = find_step([kept])
    assert step == find_step([whole])
    assert step.positions(kept).tolist() == np.delete(np.arange(40), [3, 4, 17]).tolist()


def test_a_day_of_the_month_that_some_months_lack_is_a_step_of_months():
    dates = np.array(["2024-01-30", "2024-02-29", "2024-03-30", "2024-04-30"], dtype="datetime64[us]")
    step = find_step([dates])
    assert str(step) == "month"
    assert step.after(dates[-1], 2).astype("datetime64[D]").astype(str).tolist() == ["2024-05-30", "2024-06-30"]


def test_four_weeks_are_no_month():
    assert str(find_step([times("28D")])) == "4 weeks"


def test_days_without_a_common_step_are_rows():
    random = np.random.default_rng(0)
    dates = np.datetime64("2024-01-01", "us") + np.cumsum(random.integers(1, 10**6, 30)) * np.timedelta64(1, "s")
    step = find_step([dates])
    assert step.kind == "rows"
    assert step.positions(dates).tolist() == list(range(30))
    assert (np.diff(step.after(dates[-1], 3)) > np.timedelta64(0)).all()


def test_numbers_are_steps_too():
    step = find_step([np.array([10, 12, 16, 18])])
    assert (str(step), step.season()) == ("2 steps", 1)
    assert step.positions(np.array([10, 12, 16, 18])).tolist() == [0, 1, 3, 4]
    assert step.after(np.int64(18), 2).tolist() == [20, 22]


def test_the_step_is_found_over_all_series():
    assert find_step([times("D", 1), times("D", 20)]) == TimeStep("fixed", 86_400_000_000)


def test_single_rows_are_no_series():
    with pytest.raises(DataError, match="no series has two rows"):
        find_step([times("D", 1)])


def test_every_other_step_is_a_step_of_its_own_and_no_gaps():
    hour = find_step([times("h")])
    assert not hour.is_of([times("2h", 50)])
    assert hour.is_of([np.delete(times("h"), np.arange(5, 15))]) and hour.is_of([times("h", 1)])
