"""Errors over the targets that are there."""

import numpy as np
import pytest
import torch

import brim
from brim.workloads.forecaster import LSTMForecaster, SeriesDataset
from brim.workloads.forecaster.scores import absolute, covered, forecast_metrics, score, squared, told_worse

TARGET = torch.tensor([[1.0, torch.nan, 3.0]])


def test_missing_targets_do_not_count():
    predicted = torch.tensor([[2.0, 100.0, 5.0]])
    assert (float(squared(predicted, TARGET).total), int(squared(predicted, TARGET).count)) == (5.0, 2)
    assert float(absolute(predicted, TARGET).mean) == 1.5


def test_coverage_is_the_share_between_the_outer_quantiles():
    outputs = torch.tensor([[[0.0, 0.5, 2.0], [0.0, 0.0, 0.0], [4.0, 3.5, 3.2]]])
    assert float(covered(outputs, TARGET).mean) == 0.5


def test_the_trainer_computes_them_over_all_windows(tmp_path):
    dataset = SeriesDataset(np.random.default_rng(0).normal(size=100).cumsum(), 10, 5)
    model = LSTMForecaster.for_dataset(dataset, hidden=4, layers=1, quantiles=(0.1, 0.5, 0.9))
    loader = brim.Loader(dataset.get_split_data("test"), 3)
    trainer = brim.Trainer(model, loader, device="cpu", run_dir=tmp_path / "r", metrics=forecast_metrics(model))
    found = trainer.evaluate(loader)
    model.eval()
    with torch.no_grad():
        by_hand = score(lambda past: model.predict((past, past))[..., 1], dataset)  # the median that is forecast
        assert (model(next(iter(loader))[0]).diff(dim=-1) < 0).any()
    assert found["mse"] == pytest.approx(by_hand["mse"], rel=1e-5)
    assert found["mae"] == pytest.approx(by_hand["mae"], rel=1e-5)
    assert 0 <= found["coverage"] <= 1
    assert "coverage" not in forecast_metrics(LSTMForecaster.for_dataset(dataset))


def test_rows_with_a_lower_error_than_the_forecast_are_told():
    table = {"LSTM": {"mae": 0.5, "mse": 0.2}, "repeat last": {"mae": 0.4, "mse": 0.3}, "linear": {"mae": 0.3}}
    said = "on the test part, mae of LSTM, which this run forecasts, is 0.5; lower is linear (0.3), repeat last (0.4)"
    assert told_worse(table, "mae", "test") == said
    assert told_worse(table, "mse", "test") is None
    assert told_worse({"LSTM": {"f1": 0.5}, "linear": {"mae": 0.3}}, "mae", "test") is None
    assert told_worse({"LSTM": {"mae": 0.50001}, "linear": {"mae": 0.5}}, "mae", "test") is None
