"""``brim forecast RUN``."""

import json

import pytest
from helpers.command import Command

TRAIN = [
    "train", "workload=forecaster", "data.lookback=14", "data.horizon=5", "model.hidden=4", "trainer.device=cpu",
    "trainer.threads=1", "trainer.epochs=1", "trainer.run_dir=run", "without_lstm=false", "data.stride=20",
]  # fmt: skip


@pytest.fixture
def brim(monkeypatch, capsys):
    return Command(monkeypatch, capsys)


def test_a_run_is_trained_and_forecasts(brim, tmp_path):
    trained = brim(tmp_path, *TRAIN)
    assert trained.returncode == 0 and "repeat last" in trained.stdout
    done = brim(tmp_path, "forecast", "run", "--to", "out")
    assert (done.returncode, done.stdout.split()) == (0, ["out/forecast.csv", "out/forecast.svg"])
    told = json.loads(brim(tmp_path, "forecast", "run", "--json").stdout)
    assert told["csv"] == "run/forecast.csv" and told["horizon"] == 5
    failed = brim(tmp_path, "forecast", "run", "--data", "none.csv")
    assert failed.returncode == 2 and "there is no file none.csv" in failed.stderr


def test_a_folder_without_a_run_is_one_sentence(brim, tmp_path):
    failed = brim(tmp_path, "forecast", "nowhere")
    assert failed.returncode == 2 and "nowhere" in failed.stderr
