"""Whether a forecaster is worth more than the last value."""

import numpy as np
import pytest
import torch
from torch import nn

from brim.workloads.forecaster import LSTMForecaster, SeriesDataset
from brim.workloads.forecaster.baselines import repeat_season
from brim.workloads.forecaster.fall_back import ValidationGain, gain_over_last

WALK = np.random.default_rng(0).normal(size=600).cumsum()
WEEKS = np.sin(np.arange(600) * 2 * np.pi / 7) + np.random.default_rng(1).normal(size=600) * 0.3


class Seasonal(LSTMForecaster):
    """One that says the last week again, half a unit to each side."""

    def forward(self, past, known=None, static=None):
        week = repeat_season(past, 7, self.horizon)
        return torch.stack([week - 0.5, week, week + 0.5], -1) if self.quantiles else week


def seasonal(dataset, quantiles=(0.1, 0.5, 0.9)):
    return Seasonal.for_dataset(dataset, hidden=2, layers=1, segment=7, quantiles=quantiles)


@pytest.mark.parametrize("quantiles", [(0.1, 0.5, 0.9), ()])
def test_last_week_is_a_sure_gain_where_there_are_weeks_and_none_on_a_random_walk(quantiles):
    weeks, walk = SeriesDataset(WEEKS, 14, 7), SeriesDataset(WALK, 14, 7)
    gain = gain_over_last(seasonal(weeks, quantiles), weeks)
    assert gain.is_sure and gain.share > 0.3
    assert not gain_over_last(seasonal(walk, quantiles), walk).is_sure


def test_it_is_the_loss_of_both_on_the_validation_part():
    dataset = SeriesDataset(WEEKS, 14, 7)
    past, target = (torch.stack(column) for column in zip(*dataset.get_split_data("validation"), strict=True))
    own = (target - repeat_season(past, 7, 7)).abs().mean()
    last = (target - past[:, -1:]).abs().mean()
    assert gain_over_last(seasonal(dataset, ()), dataset).share == pytest.approx(float(1 - own / last), abs=1e-6)


def test_a_validation_part_of_few_horizons_tells_nothing_and_neither_do_bands_without_a_median():
    few = SeriesDataset(WEEKS, 14, 7, split=(500, 40, 60))
    assert gain_over_last(seasonal(few), few) is None
    many = SeriesDataset(WEEKS, 14, 7, split=(500, 41, 59))
    assert gain_over_last(seasonal(many), many) is not None
    model = LSTMForecaster.for_dataset(many, hidden=2, quantiles=(0.1, 0.9))
    assert gain_over_last(model, many) is None


def test_a_series_that_is_there_ten_times_makes_nothing_surer():
    one, ten = SeriesDataset(WALK, 14, 7), SeriesDataset([WALK] * 10, 14, 7)
    alone, together = (gain_over_last(seasonal(data), data) for data in (one, ten))
    assert (together.share, together.error) == pytest.approx((alone.share, alone.error))


def test_of_a_constant_the_last_value_is_right_and_nothing_else():
    dataset = SeriesDataset(np.full(600, 5.0), 14, 7)
    gain = gain_over_last(LSTMForecaster.for_dataset(dataset, hidden=2), dataset)
    assert gain == ValidationGain(-np.inf, 0.0) and not gain.is_sure


def test_missing_targets_count_on_neither_side():
    gappy = WEEKS.copy()
    gappy[425:440] = np.nan
    dataset = SeriesDataset(gappy, 14, 7)
    gain = gain_over_last(seasonal(dataset), dataset)
    assert np.isfinite([gain.share, gain.error]).all()


def test_two_standard_errors_are_sure_and_both_are_told():
    assert (
        ValidationGain(0.21, 0.1).is_sure
        and not ValidationGain(0.19, 0.1).is_sure
        and not ValidationGain(-0.3, 0.1).is_sure
    )
    assert (
        str(ValidationGain(-0.011, 0.02))
        == "1.1% above that of repeating the last value, with a standard error of 2.0%"
    )


def test_the_model_is_left_in_the_mode_that_it_had():
    dataset = SeriesDataset(WALK, 14, 7)
    model = LSTMForecaster.for_dataset(dataset, hidden=2, dropout=0.5)
    assert isinstance(model.drop, nn.Dropout) and model.training
    gain_over_last(model, dataset)
    assert model.training and model.drop.training
