"""The steps that follow the end of each series, in its own units, with bands where the model has quantiles."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from brim.errors import DataError
from brim.workloads.forecaster.data.dates import shown_time
from brim.workloads.forecaster.data.preparation import Preparation
from brim.workloads.forecaster.data.series import Series
from brim.workloads.forecaster.data.time_step import Times, TimeStep
from brim.workloads.forecaster.lstm_forecaster import LSTMForecaster

Array = np.ndarray[Any, Any]
AT_ONCE = 1024  # series


@dataclass(frozen=True)
class SeriesForecast:
    """What is forecast of one series. ``bands`` has a value for each quantile, none where there are no quantiles."""

    series: Series
    channels: tuple[str, ...]
    times: Times  # (horizon,)
    point: Array  # (horizon, channels)
    bands: Array  # (horizon, channels, quantiles)
    quantiles: tuple[float, ...]


def forecast_series(
    model: LSTMForecaster, several: Sequence[Series], preparation: Preparation, step: TimeStep
) -> tuple[list[SeriesForecast], list[str]]:
    """The forecasts of all series that are long enough, and sentences about those that are not."""
    long = [one for one in several if len(one) >= preparation.lookback]
    if not long:
        raise DataError(
            f"no series has the {preparation.lookback} steps that a forecast is made from; the longest has "
            f"{max((len(one) for one in several), default=0)}"
        )
    made: list[SeriesForecast] = []
    model.eval()
    with torch.no_grad():
        for first in range(0, len(long), AT_ONCE):
            made += _of_some(model, long[first : first + AT_ONCE], preparation, step)
    short = [one.name for one in several if len(one) < preparation.lookback]
    notes = [
        f"{len(short)} series are shorter than lookback={preparation.lookback}: no forecast ({', '.join(short[:3])})"
    ]
    trained = set(preparation.scaling.names)
    new = [one.name for one in long if one.name not in trained]
    told = [f"{len(new)} series were not in training: scaled by what all others had in common ({', '.join(new[:3])})"]
    return made, [*(notes if short else []), *(told if new else [])]


def _of_some(
    model: LSTMForecaster, several: Sequence[Series], preparation: Preparation, step: TimeStep
) -> list[SeriesForecast]:
    coming = [step.after(one.times[-1], preparation.horizon) for one in several]
    batch = last_windows(several, coming, preparation)
    home = next(model.parameters())  # in bfloat16 after a training with precision="bf16-true"
    predicted = model.predict([column.to(home.device, home.dtype) for column in batch])
    points, bands = model.point(predicted).double().cpu().numpy(), predicted.double().cpu().numpy()
    undo, channels = preparation.scaling.undo, preparation.columns.target
    return [
        SeriesForecast(
            one, channels, times, undo(points[at], one.name),
            undo(bands[at], one.name) if model.quantiles else np.zeros((*points[at].shape, 0)), model.quantiles,
        )
        for at, (one, times) in enumerate(zip(several, coming, strict=True))
    ]  # fmt: skip


def last_windows(several: Sequence[Series], coming: Sequence[Times], preparation: Preparation) -> list[torch.Tensor]:
    """A batch of the last window of each series, with the covariates of the steps to come; targets are not known."""
    lookback, horizon = preparation.lookback, preparation.horizon
    past = np.stack([preparation.inputs(one)[0][-lookback:] for one in several])
    batch = [past, np.full((len(several), horizon, past.shape[2]), np.nan)]
    if preparation.calendar or preparation.columns.known:
        known = [
            preparation.covariates(
                np.concatenate([one.times[-lookback:], times]),
                np.concatenate([one.known[-lookback:], _ahead(one, horizon, preparation)]),
            )
            for one, times in zip(several, coming, strict=True)
        ]
        batch.append(np.stack(known))
    if preparation.columns.static:
        batch.append(np.stack([preparation.described(one) for one in several]))
    return [torch.tensor(column, dtype=torch.float32) for column in batch]


def _ahead(series: Series, horizon: int, preparation: Preparation) -> Array:
    """The known columns of the steps to come."""
    if not preparation.columns.known:
        return np.zeros((horizon, 0))
    if len(series.ahead) < horizon:
        raise DataError(
            f"the forecast needs {', '.join(preparation.columns.known)} for the {horizon} steps after "
            f"{shown_time(series.times[-1])}, and there are {len(series.ahead)}; append rows with these and an empty "
            "target"
        )
    return series.ahead[:horizon]


def as_csv(forecasts: Sequence[SeriesForecast]) -> str:
    """A row for each series, step and channel: ``series,time,target,forecast`` and a column for each quantile.

    With more digits than the network has: a large value that hardly moves would else look as if it did not at all.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["series", "time", "target", "forecast", *(f"q{level:g}" for level in forecasts[0].quantiles)])
    for one in forecasts:
        for at, time in enumerate(one.times):
            for place, channel in enumerate(one.channels):
                numbers = [one.point[at, place], *one.bands[at, place]]
                writer.writerow([one.series.name, shown_time(time), channel, *(f"{number:.12g}" for number in numbers)])
    return text.getvalue()
