"""The drawing of forecasts: well-formed, bounded, and safe with any name."""

from xml.etree import ElementTree

import numpy as np
import pytest
import torch

from brim.workloads.forecaster import LSTMForecaster, SeriesDataset
from brim.workloads.forecaster.forecasts import forecast_series
from brim.workloads.forecaster.picture import MOST, forecast_picture

SVG = "{http://www.w3.org/2000/svg}"


def drawn(data, quantiles=(0.1, 0.5, 0.9), **settings):
    dataset = SeriesDataset(data, 10, 5, **settings)
    torch.manual_seed(0)
    model = LSTMForecaster.for_dataset(dataset, hidden=4, quantiles=quantiles)
    return ElementTree.fromstring(
        forecast_picture(forecast_series(model, dataset.series, dataset.preparation, dataset.step)[0])
    )


def test_a_chart_has_the_past_the_forecast_and_its_band():
    chart = drawn(np.arange(60.0))
    assert len(chart.findall(f".//{SVG}polygon")) == 1
    assert len(chart.findall(f".//{SVG}polyline")) == 2
    assert "80 % of values" in "".join(chart.itertext())


def test_without_quantiles_there_is_no_band():
    assert drawn(np.arange(60.0), quantiles=()).findall(f".//{SVG}polygon") == []


def test_of_many_series_the_first_dozen_are_drawn_and_that_is_said():
    chart = drawn([np.arange(60.0)] * 20)
    assert len(chart.findall(f".//{SVG}polygon")) == MOST
    assert "the first 12 of 20" in "".join(chart.itertext())


@pytest.mark.parametrize("values", [np.ones(60), np.zeros(60), 1e-9 * np.arange(60), 1e12 + np.arange(60.0)])
def test_constants_and_odd_sizes_are_drawn(values):
    text = ElementTree.tostring(drawn(values)).decode()
    assert "nan" not in text and "inf" not in text


def test_a_gap_is_a_gap():
    values = np.arange(60.0)
    values[50:53] = np.nan
    assert len(drawn(values).findall(f".//{SVG}polyline")) == 3


def test_names_cannot_end_the_drawing():
    name = "</text><script>alert(1)</script>"
    chart = drawn({name: np.arange(60.0)})
    assert chart.findall(f".//{SVG}script") == []
    assert name in "".join(chart.itertext())
