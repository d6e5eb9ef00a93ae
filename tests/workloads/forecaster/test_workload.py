"""``workload: forecaster``: a run from a configuration to its table, its page and its forecast."""

import io
import json

import numpy as np
import pandas as pd
import pytest

import brim
from brim.config import load_config
from brim.config.workload import open_workload
from brim.errors import BrimError
from brim.workloads.forecaster.fall_back import ValidationGain
from brim.workloads.forecaster.run_forecast import forecast_run
from brim.workloads.forecaster.workload import ForecasterWorkload

pytestmark = pytest.mark.usefixtures("own_folder")

SMALL = [
    "workload=forecaster", "data.path=a.csv", "data.lookback=14", "data.horizon=5", "model.hidden=4",
    "trainer.device=cpu", "trainer.threads=1", "trainer.epochs=2", "trainer.run_dir=run", "trainer.loggers=false",
]  # fmt: skip


@pytest.fixture(autouse=True)
def file(own_folder):
    steps = np.arange(150)
    frame = pd.DataFrame({"date": pd.date_range("2024-01-01", periods=150), "y": 10 + steps % 7 + 0.01 * steps})
    frame.to_csv("a.csv", index=False)


def workload(*overrides):
    return open_workload(load_config(None, [*SMALL, *overrides]))


def test_a_run_ends_with_its_row_beside_the_naive_ones_and_the_same_without_the_lstm(capsys):
    outcome = workload().run()
    assert list(outcome.table) == [
        "LSTM 4 x 1, segments of 7", "the same without the LSTM", "repeat last", "repeat season (7)", "linear",
    ]  # fmt: skip
    assert outcome.columns == ("mse", "mae", "coverage") and outcome.judged_by == "test"
    assert (
        "warning: on the test part, mae of LSTM 4 x 1" in capsys.readouterr().err
    )  # a week and a line: others are exact
    result = json.loads((outcome.result.run / "result.json").read_text())
    assert result["table"]["repeat last"] == outcome.table["repeat last"]
    page = (outcome.result.run / "report.html").read_text()
    assert "repeat season (7)" in page and "data:image/svg+xml;base64," in page
    assert (outcome.result.run / "forecast.csv").read_text().startswith("series,time,target,forecast,q0.1,q0.5,q0.9\n")
    assert load_config("run/config.yaml") == load_config(None, SMALL)
    assert brim.load("run").arguments["horizon"] == 5


def test_a_run_that_is_no_better_than_the_last_value_says_so_and_forecasts_that(capsys):
    walk = np.random.default_rng(0).normal(size=400).cumsum()
    pd.DataFrame({"date": pd.date_range("2024-01-01", periods=400), "y": walk}).to_csv("a.csv", index=False)
    outcome = workload("without_lstm=false").run()
    assert "no sure gain, so this run forecasts the last value" in capsys.readouterr().err
    fallen, learned, last = list(outcome.table.items())[:3]
    assert (fallen[0], learned[0], last[0]) == (
        "repeat last, learned bands", "LSTM 4 x 1, segments of 7", "repeat last",
    )  # fmt: skip
    assert fallen[1]["mse"] == pytest.approx(last[1]["mse"], rel=1e-6) and learned[1]["mse"] != last[1]["mse"]
    assert brim.load("run").repeats_last
    forecast = pd.read_csv("run/forecast.csv")
    assert forecast["forecast"].to_numpy() == pytest.approx(walk[-1], rel=1e-5)
    assert (forecast["q0.1"] < forecast["forecast"]).all()
    outcome = workload("without_lstm=false", "fall_back=false", "trainer.run_dir=other").run()
    assert outcome.table == {name: row for name, row in outcome.table.items() if name != fallen[0]}
    assert outcome.table[learned[0]] == learned[1] and not brim.load("other").repeats_last


def test_what_was_done_to_the_series_is_said(capsys):
    frame = pd.read_csv("a.csv")
    frame.drop([20, 21]).to_csv("a.csv", index=False)
    workload("without_lstm=false", "train_ds.num_workers=4").run()
    said = capsys.readouterr().err
    assert "series: 2 steps (day) had no row, and count as missing" in said
    assert "train_ds.num_workers cannot act" in said


def test_the_run_without_the_lstm_can_be_left_out_and_has_none_itself():
    assert "the same without the LSTM" not in workload("without_lstm=false").run().table
    outcome = workload("model.layers=0", "trainer.run_dir=other").run()
    assert next(iter(outcome.table)) == "without the LSTM"


def test_without_a_test_part_validation_judges():
    outcome = workload("data.split=[120, 30, 0]", "without_lstm=false").run()
    assert outcome.judged_by == "evaluation" and "repeat last" in outcome.table


def test_a_future_that_is_not_known_yet_ends_no_run(capsys):
    frame = pd.read_csv("a.csv")
    frame.assign(price=1.0 + frame["y"]).to_csv("a.csv", index=False)
    outcome = workload("data.known=price", "data.target=y", "without_lstm=false").run()
    assert "repeat last" in outcome.table
    assert (
        "no forecast beyond the end of the series: the forecast needs price for the 5 steps" in capsys.readouterr().err
    )


def test_a_dry_run_leaves_nothing(tmp_path):
    outcome = workload("trainer.fast_dev_run=true").run()
    assert list(outcome.table) == ["LSTM 4 x 1, segments of 7"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.csv"]


def test_a_run_in_bfloat16_forecasts_too():
    frame = pd.DataFrame({"date": pd.date_range("2024-01-01", periods=400), "y": np.arange(400) % 7 + 0.0})
    frame.to_csv("a.csv", index=False)
    outcome = workload("trainer.precision=bf16-true", "without_lstm=false").run()
    forecast = (outcome.result.run / "forecast.csv").read_text()
    assert forecast.count("\n") == 6
    forecast_run("run")
    again = pd.read_csv(outcome.result.run / "forecast.csv")["forecast"]
    assert again.to_numpy() == pytest.approx(pd.read_csv(io.StringIO(forecast))["forecast"].to_numpy(), rel=0.05)


def test_a_run_is_resumed():
    first = workload("trainer.epochs=1", "without_lstm=false").run()
    again = workload("trainer.epochs=2", "without_lstm=false").run(resume=first.result.run)
    assert (again.result.epochs, again.result.run) == (2, first.result.run)


def test_a_run_that_was_resumed_and_is_better_then_forecasts_what_it_learned(monkeypatch):
    gains = iter((ValidationGain(0.01, 0.02), ValidationGain(0.2, 0.02)))
    monkeypatch.setattr("brim.workloads.forecaster.workload.gain_over_last", lambda *_: next(gains))
    first = workload("trainer.epochs=1", "without_lstm=false").run()
    assert brim.load("run").repeats_last
    workload("trainer.epochs=2", "without_lstm=false").run(resume=first.result.run)
    assert not brim.load("run").repeats_last


def test_it_is_planned_and_measured_as_any_other():
    job = workload().plan_job()
    assert job["batch_size"] == workload().read().batch_size == 128
    plan = brim.plan(**job, card="NVIDIA H200")
    assert (plan.batch_size, plan.micro_batch) == (128, 128)
    trainer = workload("train_ds.batch_size=16").build_trainer(whole_batches=True)
    assert trainer.train_data.drop_last


def test_without_a_file_the_embedded_series_is_long_enough_to_train_on():
    config = load_config(None, ["workload=forecaster"])
    assert len(ForecasterWorkload(config).dataset.starts("train")) > 500


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("data.path=none.csv", "there is no file none.csv"),
        ("data.target=z", "has no column 'z'"),
        ("data.lookback=500", "the longest series has 150 steps"),
        ("model.segment=20", "segment=20 is longer than lookback=14"),
        ("data.split=[a, b]", "cannot be used"),
    ],
)
def test_mistakes_are_one_sentence(override, said):
    with pytest.raises(BrimError, match=said):
        workload(override).run()
