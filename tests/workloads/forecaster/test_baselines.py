"""Naive forecasts."""

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from brim.workloads.forecaster import SeriesDataset
from brim.workloads.forecaster.baselines import fit_linear, naive_forecasts, repeat_season
from brim.workloads.forecaster.scores import naive_rows


def daily(values, lookback=14, horizon=5, **settings):
    index = pd.date_range("2024-01-01", periods=len(values))
    return SeriesDataset(pd.Series(values, index=index), lookback, horizon, **settings)


def test_a_season_is_repeated_and_cut():
    past = torch.arange(10.0)[None, :, None]
    assert repeat_season(past, 3, 7).ravel().tolist() == [7, 8, 9, 7, 8, 9, 7]
    assert repeat_season(past, 10, 2).ravel().tolist() == [0, 1]


def test_what_repeats_exactly_is_forecast_exactly():
    rows = naive_rows(daily(np.tile(np.arange(7.0), 20)))
    assert rows["repeat season (7)"]["mse"] == pytest.approx(0, abs=1e-9)
    assert rows["linear"]["mse"] == pytest.approx(0, abs=1e-4)
    assert rows["repeat last"]["mse"] > 0.1


def test_a_line_goes_on():
    rows = naive_rows(daily(np.arange(200.0)))
    assert rows["linear"]["mae"] < 0.01 * rows["repeat last"]["mae"]


def test_the_season_is_left_out_where_a_window_does_not_hold_one():
    assert list(naive_forecasts(daily(np.arange(100.0), lookback=6))) == ["repeat last", "linear"]
    assert list(naive_forecasts(daily(np.arange(100.0), season=1))) == ["repeat last", "linear"]


def test_linear_is_least_squares_on_differences_from_the_last_value():
    dataset = daily(np.random.default_rng(0).normal(size=300).cumsum())
    past, target = (torch.stack(one).double() for one in zip(*dataset.get_split_data("train"), strict=True))
    inputs = torch.cat([(past - past[:, -1:])[..., 0], torch.ones(len(past), 1)], 1)
    weights = torch.linalg.lstsq(inputs, (target - past[:, -1:])[..., 0], driver="gelsd").solution
    expected = inputs @ weights + past[:, -1]
    assert torch.allclose(fit_linear(dataset)(past.float())[..., 0].double(), expected, atol=0.02)


def test_steps_without_a_value_leave_no_phase_out_of_the_linear_fit():
    """Every window ahead of a shop that is closed on Sundays lacks a target, but for those of one weekday."""
    whole = np.tile([3.0, 5.0, 4.0, 8.0, 9.0, 2.0, 0.0], 60) + np.random.default_rng(0).normal(0, 0.1, 420)
    closed = np.where(np.arange(420) % 7 == 6, np.nan, whole)
    rows = naive_rows(daily(closed, horizon=6))
    assert rows["linear"]["mae"] < rows["repeat season (7)"]["mae"] < rows["repeat last"]["mae"]


def test_a_linear_fit_with_gaps_is_that_of_the_windows_with_a_target_for_each_step(monkeypatch):
    values = np.random.default_rng(0).normal(size=300).cumsum()
    dataset = daily(np.where(np.arange(300) % 11 == 3, np.nan, values))
    past, target = (torch.stack(one).double() for one in zip(*dataset.get_split_data("train"), strict=True))
    inputs = torch.cat([(past - past[:, -1:])[..., 0], torch.ones(len(past), 1)], 1)
    wanted = (target - past[:, -1:])[..., 0]
    weights = []
    for step in range(5):
        there = wanted[:, step].isfinite()
        weights.append(torch.linalg.lstsq(inputs[there], wanted[there, step], driver="gelsd").solution)
    expected = inputs @ torch.stack(weights, 1) + past[:, -1]
    for most in (1 << 25, 15**2):  # all steps at once, and one at a time
        monkeypatch.setattr("brim.workloads.forecaster.baselines.MOST_NUMBERS", most)
        assert torch.allclose(fit_linear(dataset)(past.float())[..., 0].double(), expected, atol=0.02)


@pytest.mark.parametrize("values", [np.ones(100), np.where(np.arange(100) % 9 == 0, np.nan, np.arange(100.0))])
def test_constants_and_gaps_give_finite_errors(values):
    assert all(np.isfinite(error) for row in naive_rows(daily(values)).values() for error in row.values())


@pytest.mark.slow
@pytest.mark.skipif("BRIM_TEST_DATA" not in os.environ, reason="BRIM_TEST_DATA is not set")
def test_the_naive_rows_of_etth1_are_those_that_are_published():
    """Repeat: 1.295 / 0.713; a linear model of all channels about 0.386 / 0.400."""
    file = Path(os.environ["BRIM_TEST_DATA"]) / "ett/ETTh1.csv"
    rows = naive_rows(SeriesDataset(file, 96, 96, split=(8640, 2880, 2880)))
    for name, mse, mae in (
        ("repeat last", 1.2944, 0.7132),
        ("repeat season (24)", 0.5122, 0.4333),
        ("linear", 0.3832, 0.3915),
    ):
        assert rows[name]["mse"] == pytest.approx(mse, abs=5e-4)
        assert rows[name]["mae"] == pytest.approx(mae, abs=5e-4)
