"""Forecasts of series: data by time without leaks, an LSTM with bands, and naive forecasts beside every result.

In: a file, a DataFrame or arrays with one or many series. Out: a run with its scores, and ``brim forecast RUN``.
"""

from brim.workloads.forecaster.data.dataset import SeriesDataset
from brim.workloads.forecaster.lstm_forecaster import LSTMForecaster

__all__ = ["LSTMForecaster", "SeriesDataset"]
