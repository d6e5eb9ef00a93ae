"""Forecasts of a run: what its folder keeps for them, and what they leave there."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from brim.errors import RunFolderError
from brim.record import RunFolder
from brim.record.plain_yaml import read_yaml
from brim.record.report.pictures import PICTURES
from brim.record.run_folder import CONFIG
from brim.workloads.forecaster.data.dataset import SeriesDataset, series_table
from brim.workloads.forecaster.data.embedded import embedded_series
from brim.workloads.forecaster.data.preparation import Preparation
from brim.workloads.forecaster.data.series import Series, check_numbers, series_of, without_empty
from brim.workloads.forecaster.data.time_step import TimeStep
from brim.workloads.forecaster.forecasts import SeriesForecast, as_csv, forecast_series
from brim.workloads.forecaster.lstm_forecaster import LSTMForecaster
from brim.workloads.forecaster.picture import forecast_picture

PREPARATION = "series.json"
FORECAST = "forecast.csv"
PICTURE = "forecast.svg"


def write_preparation(folder: RunFolder, dataset: SeriesDataset) -> None:
    """Leave what a forecast of newer data needs: names of columns and statistics of the training steps."""
    folder.write_json(PREPARATION, dataset.preparation.as_json())


def read_preparation(folder: RunFolder) -> Preparation:
    """What :func:`write_preparation` left."""
    path = folder.path / PREPARATION
    try:
        return Preparation.from_json(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError as error:
        raise RunFolderError(
            f"{folder.path} is no finished run of the forecaster: it has no {PREPARATION}; name one that "
            "workload: forecaster made"
        ) from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunFolderError(f"{path} is damaged, so the run cannot forecast; train it again") from error


def write_forecast(
    folder: RunFolder, model: LSTMForecaster, several: Sequence[Series], preparation: Preparation, step: TimeStep,
    to: Path | None = None,
) -> tuple[list[SeriesForecast], list[str]]:  # fmt: skip
    """Forecast, and write ``forecast.csv`` and ``forecast.svg`` (for the report too); returns forecasts and notes."""
    forecasts, notes = forecast_series(model, several, preparation, step)
    place = folder if to is None else RunFolder(to)
    try:
        place.path.mkdir(parents=True, exist_ok=True)
        (folder.path / PICTURES).mkdir(exist_ok=True)
    except OSError as error:
        raise RunFolderError(
            f"cannot write to {place.path}: {error.strerror}; name another folder with --to"
        ) from error
    picture = forecast_picture(forecasts)
    place.write(FORECAST, as_csv(forecasts))
    place.write(PICTURE, picture)
    folder.write(f"{PICTURES}/{PICTURE}", picture)
    return forecasts, notes


def forecast_run(run: str | Path, data: Any = None, to: Path | None = None) -> tuple[list[SeriesForecast], list[str]]:
    """Forecast with the trained model of a run: the steps after the end of its series, or after that of newer ``data``.

    Args:
        run: the run folder.
        data: a file or DataFrame with the columns that the run was trained on; None for the run's own file.
        to: where ``forecast.csv`` and ``forecast.svg`` are written; None for the run folder.

    Returns:
        A forecast for each series, and sentences about what was done to get there.
    """
    from brim.workloads.saved_model import load  # which knows this model as one of many

    folder = RunFolder.open(run)
    preparation = read_preparation(folder)
    model = load(run)
    if not isinstance(model, LSTMForecaster) or model.lookback != preparation.lookback:
        raise RunFolderError(f"{folder.path / PREPARATION} is not of the model in {folder.path}; train it again")
    several, step, notes = newest_series(_own_data(folder) if data is None else data, preparation)
    made, more = write_forecast(folder, model, several, preparation, step, to)
    return made, [*notes, *more]


def _own_data(folder: RunFolder) -> Any:
    """What the run was trained on: the file that its configuration names."""
    told = read_yaml((folder.path / CONFIG).read_text(encoding="utf-8"), str(folder.path / CONFIG))
    section = told.get("data") if isinstance(told, dict) else None
    if not isinstance(section, dict):
        raise RunFolderError(f"{folder.path / CONFIG} names no data; name a file with --data")
    path = section.get("path")
    return embedded_series() if path is None else str(path)


def newest_series(data: Any, preparation: Preparation) -> tuple[Sequence[Series], TimeStep, list[str]]:
    """The series of ``data`` by the names of columns that training had."""
    columns, table = preparation.columns, series_table(data)
    named = {columns.time: "time", columns.series: "series"} | dict.fromkeys(columns.target, "target")
    for name, what in (named | dict.fromkeys(columns.known, "known") | dict.fromkeys(columns.static, "static")).items():
        if name is not None:
            table.column(name, what)
    check_numbers(table, (*columns.target, *columns.known))
    found = without_empty(series_of(table, columns, preparation.step))
    return found.series, found.step, list(found.notes)
