"""Forecasts of a run, later and with newer data."""

import numpy as np
import pandas as pd
import pytest

from brim.config import load_config
from brim.config.workload import open_workload
from brim.errors import BrimError
from brim.workloads.forecaster import SeriesDataset
from brim.workloads.forecaster.run_forecast import forecast_run, newest_series

SETTINGS = [
    "workload=forecaster", "data.lookback=14", "data.horizon=5", "model.hidden=4", "trainer.device=cpu",
    "trainer.threads=1", "trainer.epochs=1", "trainer.loggers=false", "without_lstm=false", "data.calendar=auto",
]  # fmt: skip


def frame(steps=100, start="2024-01-01"):
    return pd.DataFrame({"date": pd.date_range(start, periods=steps), "y": 10.0 + np.arange(steps) % 7})


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("forecast")
    frame().to_csv(folder / "a.csv", index=False)
    paths = [f"data.path={folder / 'a.csv'}", f"trainer.run_dir={folder / 'run'}"]
    return open_workload(load_config(None, [*SETTINGS, *paths])).run().result.run


def test_a_run_forecasts_what_it_did_at_its_end(run):
    before = (run / "forecast.csv").read_text()
    forecasts, notes = forecast_run(run)
    assert notes == [] and forecasts[0].times[0] == np.datetime64("2024-04-10")
    assert (run / "forecast.csv").read_text() == before


def test_newer_data_is_prepared_as_training_data_was(run, tmp_path):
    frame(40, "2025-06-01").to_parquet(tmp_path / "new.parquet")
    forecasts, _ = forecast_run(run, tmp_path / "new.parquet", tmp_path / "out")
    assert forecasts[0].times[0] == np.datetime64("2025-07-11")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["forecast.csv", "forecast.svg"]
    assert 5 < forecasts[0].point.mean() < 22


def test_the_same_values_give_the_same_forecast_whatever_stood_before_them(run):
    """A forecast is made from the last window; statistics are those of training."""
    longer, _ = forecast_run(run, frame(100))
    shorter, _ = forecast_run(run, frame(100).iloc[-14:])
    np.testing.assert_allclose(longer[0].point, shorter[0].point, rtol=1e-6)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: data.rename(columns={"y": "z"}), "has no column 'y' \\(target\\)"),
        (lambda data: data.drop(columns="date"), "has no column 'date' \\(time\\)"),
        (lambda data: data.iloc[:9], "no series has the 14 steps"),
        (lambda data: data.assign(y=["a"] * len(data)), "is not made of numbers"),
        (lambda data: data.assign(date=pd.date_range("2024-01-01", periods=len(data), freq="h")), "for each day, and "),
        (lambda data: data.iloc[::7], "has one for each week; bring it to the same step"),
        (lambda data: data.assign(date=range(len(data))), "has one for each step"),
    ],
)
def test_data_of_another_kind_is_one_sentence(run, change, said):
    with pytest.raises(BrimError, match=said):
        forecast_run(run, change(frame()))


def test_newer_rows_lie_on_the_grid_of_training_even_where_they_alone_show_another():
    weekdays = SeriesDataset(pd.DataFrame({"date": pd.bdate_range("2024-01-01", periods=60), "y": range(60)}), 5, 5)
    week = pd.DataFrame({"date": pd.bdate_range("2024-06-03", periods=5), "y": range(5)})
    assert str(newest_series(week, weekdays.preparation)[1]) == "weekday"
    seven = pd.DataFrame({"date": pd.date_range("2024-06-03", periods=14), "y": range(14)})
    with pytest.raises(BrimError, match="for each weekday, and the DataFrame has one for each day"):
        newest_series(seven, weekdays.preparation)


def test_a_category_that_training_did_not_know_is_told():
    kinds = [frame(60).assign(id=name, kind=kind) for name, kind in (("1", "a"), ("2", "b"))]
    made = SeriesDataset(pd.concat(kinds), 14, 5, target="y", series="id", static="kind")
    _, _, notes = newest_series(frame(30).assign(id="1", kind="c"), made.preparation)
    assert notes == ["kind: c did not occur in training, and counts as none of its categories"]


def test_a_folder_that_cannot_forecast_is_refused(run, tmp_path):
    with pytest.raises(BrimError, match="is not a run folder"):
        forecast_run(tmp_path)
    (tmp_path / "metrics.jsonl").touch()
    with pytest.raises(BrimError, match="is no finished run of the forecaster"):
        forecast_run(tmp_path)
    (tmp_path / "series.json").write_text('{"lookback": 3}')
    with pytest.raises(BrimError, match="is damaged"):
        forecast_run(tmp_path)
