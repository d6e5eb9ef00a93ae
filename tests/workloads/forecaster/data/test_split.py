"""Borders in time."""

import numpy as np
import pandas as pd
import pytest

from brim.errors import BrimError
from brim.workloads.forecaster import SeriesDataset


def data(steps=100, split=None, lookback=10, horizon=5, start="2024-01-01"):
    frame = pd.DataFrame({"date": pd.date_range(start, periods=steps), "y": np.arange(steps)})
    return SeriesDataset(frame, lookback, horizon, split=split)


@pytest.mark.parametrize(
    ("split", "borders"),
    [
        (None, (70, 80, 100)),
        ((0.6, 0.2, 0.2), (60, 80, 100)),
        ((0.5, 0.2, 0.1), (50, 70, 80)),
        ((50, 20, 10), (50, 70, 80)),
        (("2024-02-20", "2024-03-11"), (50, 70, 100)),
        (("2024-02-20", "2024-03-11", "2024-03-21"), (50, 70, 80)),
    ],
)
def test_a_split_is_shares_numbers_of_steps_or_dates(split, borders):
    border = data(split=split).borders[0]
    assert (border.validation, border.test, border.end) == borders


def test_a_short_series_keeps_a_horizon_to_judge_by():
    border = data(steps=30).borders[0]
    assert (border.validation, border.test, border.end) == (19, 24, 30)


def test_the_horizon_of_every_window_lies_in_its_part():
    made = data()
    for split, first, end in (("train", 0, 70), ("validation", 70, 80), ("test", 80, 100)):
        targets = made.starts(split).numpy() + 10
        assert targets.min() >= first and targets.max() + 5 <= end
    assert len(made.get_split_data("train")) == 70 - 10 - 5 + 1
    assert len(made.get_split_data("validation")) == 10 - 5 + 1


def test_series_with_dates_share_the_border_whatever_their_own_length():
    frame = pd.concat([
        pd.DataFrame({"id": "long", "date": pd.date_range("2024-01-01", periods=100), "y": range(100)}),
        pd.DataFrame({"id": "late", "date": pd.date_range("2024-02-10", periods=60), "y": range(60)}),
    ])  # fmt: skip
    made = SeriesDataset(frame, 10, 5, series="id")
    first, second = made.borders
    assert made.series[0].times[first.validation] == made.series[1].times[second.validation]


def test_series_that_are_only_counted_are_each_cut_by_themselves():
    made = SeriesDataset([np.arange(100), np.arange(50)], 10, 5)
    assert [one.validation for one in made.borders] == [70, 35]


@pytest.mark.parametrize(
    ("split", "said"),
    [
        ((0.5, 0.5), "cannot be used"),
        ((0.9, 0.9, 0.9), "shares add up to 1"),
        ((-1, 1, 1), "cannot be used"),
        ((80, 20, 20), "asks for 120 steps, and there are 100"),
        ((1.0, 0.0, 0.0), "leaves nothing"),
        (("2024-03-11", "2024-02-20"), "ascending order"),
        (("soon", "later"), "dates in ascending order"),
        (("2020-01-01", "2020-02-01"), "the series goes from"),
        ((90, 2, 8), "no window to choose the best weights by"),
        ((12, 44, 44), "no window to train on"),
        ((True, 1, 1), "cannot be used"),
    ],
)
def test_a_split_that_cannot_be_is_one_sentence(split, said):
    with pytest.raises(BrimError, match=said):
        data(split=split)


def test_dates_for_steps_that_have_none_are_refused():
    with pytest.raises(BrimError, match="the series has no dates"):
        SeriesDataset(np.arange(100), 10, 5, split=("2024-01-01", "2024-02-01"))
