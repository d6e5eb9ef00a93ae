"""Losses over the targets that are there."""

import pytest
import torch
import torch.nn.functional as F

from brim.errors import ConfigError
from brim.workloads.forecaster.forecast_loss import check_quantiles, forecast_loss

PREDICTED, TARGET = torch.randn(4, 3, 2), torch.randn(4, 3, 2)


@pytest.mark.parametrize(("name", "plain"), [("l1", F.l1_loss), ("mse", F.mse_loss)])
def test_without_gaps_it_is_torchs_mean(name, plain):
    loss = forecast_loss(PREDICTED, TARGET, loss=name)
    assert torch.allclose(loss.mean, plain(PREDICTED, TARGET))
    assert loss.count == 24


def test_missing_targets_weigh_nothing_and_have_no_gradient():
    target = TARGET.clone()
    target[1, 2] = torch.nan
    predicted = PREDICTED.clone().requires_grad_()
    loss = forecast_loss(predicted, target)
    loss.mean.backward()
    there = target.isfinite()
    assert loss.count == 22
    assert torch.allclose(loss.mean, (PREDICTED - TARGET)[there].abs().mean())
    assert predicted.grad[~there].abs().sum() == 0 and predicted.grad.isfinite().all()


def test_the_pinball_loss_is_least_at_the_quantile():
    samples = torch.randn(20_000, 1, 1, generator=torch.Generator().manual_seed(0))
    levels = (0.1, 0.9)
    true = torch.quantile(samples.ravel(), torch.tensor(levels))
    best = forecast_loss(true.expand(len(samples), 1, 1, 2), samples, levels).mean
    for moved in (true - 0.1, true + 0.1):
        assert forecast_loss(moved.expand(len(samples), 1, 1, 2), samples, levels).mean > best


def test_the_pinball_loss_of_the_median_is_half_the_absolute_error():
    loss = forecast_loss(PREDICTED[..., None], TARGET, (0.5,))
    assert torch.allclose(2 * loss.mean, F.l1_loss(PREDICTED, TARGET))


@pytest.mark.parametrize("quantiles", [(0.0, 0.5), (1.0,), (1.5,), (True,), ("a",), (0.5, 0.5)])
def test_quantiles_that_are_none_are_refused(quantiles):
    with pytest.raises(ConfigError, match="quantiles="):
        check_quantiles(quantiles)
