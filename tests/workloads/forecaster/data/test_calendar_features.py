"""What the calendar says of a time."""

import numpy as np
import pandas as pd
import pytest

from brim.errors import ConfigError
from brim.workloads.forecaster.data.calendar_features import calendar_features, chosen_features
from brim.workloads.forecaster.data.time_step import DAY, TimeStep


@pytest.mark.parametrize(
    ("step", "names"),
    [
        (TimeStep("fixed", DAY // 24), ("hour", "weekday", "yearday")),
        (TimeStep("fixed", DAY), ("weekday", "monthday", "yearday")),
        (TimeStep("weekdays", 1), ("weekday", "monthday", "yearday")),
        (TimeStep("fixed", 7 * DAY), ("yearday",)),
        (TimeStep("months", 3), ("month",)),
        (TimeStep("months", 12), ()),
    ],
)
def test_auto_takes_what_differs_from_step_to_step(step, names):
    assert chosen_features("auto", step, has_dates=True) == names
    assert chosen_features(True, step, has_dates=True) == names


def test_without_dates_auto_takes_none_and_names_are_refused():
    step = TimeStep("numbers", 1)
    assert chosen_features("auto", step, has_dates=False) == ()
    assert chosen_features(False, step, has_dates=True) == ()
    with pytest.raises(ConfigError, match="need dates"):
        chosen_features(["hour"], step, has_dates=False)
    with pytest.raises(ConfigError, match="none of hour, weekday"):
        chosen_features("moon", step, has_dates=True)


def test_features_go_round():
    times = pd.date_range("2024-01-01", periods=48, freq="h").to_numpy().astype("datetime64[us]")
    hours = calendar_features(times, ["hour"])
    assert hours.shape == (48, 2)
    np.testing.assert_allclose(hours[:24], hours[24:], atol=1e-12)
    np.testing.assert_allclose((hours**2).sum(1), 1)
    monday = calendar_features(times[:1], ["weekday", "monthday", "yearday", "month"])[0]
    np.testing.assert_allclose(monday, [0, 0, 0, 0, 1, 1, 1, 1])  # a Monday, the first of January
