"""Forecasts beyond the end of each series, in its own units."""

import csv
import io
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from brim.errors import DataError
from brim.workloads.forecaster import LSTMForecaster, SeriesDataset
from brim.workloads.forecaster.forecasts import as_csv, forecast_series


def shops(steps=60, **columns):
    return pd.concat([
        pd.DataFrame({"shop": name, "date": pd.date_range("2024-01-01", periods=steps),
                      "y": level + np.arange(steps) % 7, **columns}) for name, level in (("a", 0.0), ("b", 1e6))
    ])  # fmt: skip


def made(dataset, **settings):
    torch.manual_seed(0)
    model = LSTMForecaster.for_dataset(dataset, hidden=4, layers=1, **settings)
    return forecast_series(model, dataset.series, dataset.preparation, dataset.step)


def test_each_series_goes_on_from_its_last_time_near_its_last_values():
    forecasts, notes = made(SeriesDataset(shops(), 14, 5, series="shop"), quantiles=(0.1, 0.5, 0.9))
    assert notes == []
    assert [one.series.name for one in forecasts] == ["a", "b"]
    assert forecasts[0].times[0] == np.datetime64("2024-03-01")
    assert abs(forecasts[1].point - 1e6).max() < 100
    assert (np.diff(forecasts[0].bands, axis=-1) >= 0).all()
    np.testing.assert_allclose(forecasts[0].point, forecasts[0].bands[..., 1])


def test_a_forecast_is_what_the_model_says_of_the_last_window():
    dataset = SeriesDataset(shops(), 14, 5, series="shop", calendar="auto")
    torch.manual_seed(0)
    model = LSTMForecaster.for_dataset(dataset, hidden=4, layers=1).eval()
    shorter = [
        replace(one, times=one.times[:-5], values=one.values[:-5], known=one.known[:-5]) for one in dataset.series
    ]
    forecasts, _ = forecast_series(model, shorter, dataset.preparation, dataset.step)
    batch = dataset.windows()[60 - 5 - 14]  # the window of the first series whose target are its last five steps
    with torch.no_grad():
        said = model.predict([column[None] for column in batch])[0].double().numpy()
    np.testing.assert_allclose(forecasts[0].point, dataset.preparation.scaling.undo(said, "a"), rtol=1e-5)


def test_known_columns_need_their_future():
    price = np.arange(60.0)
    dataset = SeriesDataset(shops(price=price), 14, 5, series="shop", target="y", known="price")
    with pytest.raises(DataError, match=r"needs price for the 5 steps after 2024-02-29, and there are 0; append rows"):
        made(dataset)
    frame = shops(price=price)
    frame.loc[frame.index >= 55, "y"] = np.nan
    forecasts, _ = made(SeriesDataset(frame, 14, 5, series="shop", target="y", known="price"))
    assert forecasts[0].times[0] == np.datetime64("2024-02-25")


def test_short_series_are_told_and_new_ones_scaled_by_all():
    dataset = SeriesDataset([np.arange(60.0), np.arange(60.0)], 14, 5)
    model = LSTMForecaster.for_dataset(dataset, hidden=4)
    one = dataset.series[0]
    new, short = replace(one, name="new"), replace(one, name="short", times=one.times[:3], values=one.values[:3])
    forecasts, notes = forecast_series(model, [new, short], dataset.preparation, dataset.step)
    assert len(forecasts) == 1
    assert "1 series are shorter than lookback=14: no forecast (short)" in notes
    assert "1 series were not in training" in notes[1]
    with pytest.raises(DataError, match="no series has the 14 steps"):
        forecast_series(model, [short], dataset.preparation, dataset.step)


def test_a_large_value_that_hardly_moves_is_written_with_the_digits_that_move():
    dataset = SeriesDataset(1e9 + np.arange(60) % 7, 14, 5)
    forecasts, _ = made(dataset)
    rows = list(csv.DictReader(io.StringIO(as_csv(forecasts))))
    written = np.array([float(row["forecast"]) for row in rows])
    assert np.abs(written - forecasts[0].point[:, 0]).max() < 0.01 and written.std() > 0


def test_the_csv_has_a_row_for_each_series_step_and_target():
    forecasts, _ = made(SeriesDataset(shops(), 14, 5, series="shop"), quantiles=(0.1, 0.9))
    rows = list(csv.DictReader(io.StringIO(as_csv(forecasts))))
    assert len(rows) == 10
    assert list(rows[0]) == ["series", "time", "target", "forecast", "q0.1", "q0.9"]
    assert (rows[0]["series"], rows[0]["time"], rows[0]["target"]) == ("a", "2024-03-01", "y")
    assert float(rows[5]["q0.1"]) <= float(rows[5]["q0.9"])
