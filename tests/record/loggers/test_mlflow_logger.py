"""With the real library and a local store: no server is needed."""

import json
import warnings

import pytest
import torch
from helpers.small_training import X, Y, net, sgd
from torch import nn

import brim
from brim.errors import ConfigError
from brim.record.loggers import MLflowLogger

pytestmark = pytest.mark.slow  # its import takes seconds, so that it is left to the tests


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow", reason="the library mlflow is not installed")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "store").as_uri())
    for name in ("MLFLOW_EXPERIMENT_ID", "MLFLOW_EXPERIMENT_NAME", "MLFLOW_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield mlflow.MlflowClient()


def trainer(folder, loggers, **settings):
    chosen = {"epochs": 2, "log_every": 1, "device": "cpu", "threads": 1, "loss_fn": nn.MSELoss(), **settings}
    loader = brim.Loader((X, Y), batch_size=10)
    return brim.Trainer(net(), loader, (X, Y), optimizer=sgd, run_dir=folder, loggers=loggers, **chosen)


def runs_of(store, experiment="Default"):
    return store.search_runs([store.get_experiment_by_name(experiment).experiment_id])


def points(store, run, name):
    return [(one.step, one.value) for one in store.get_metric_history(run.info.run_id, name)]


def lines(folder, name):
    found = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [(line["step"], line[name]) for line in found if name in line]


def test_it_has_every_number_of_the_run_and_its_settings_and_the_training_is_the_same(tmp_path, store):
    plain = trainer(tmp_path / "plain", False)
    plain.fit()
    logged = trainer(tmp_path / "run", "mlflow")
    logged.fit()
    (run,) = runs_of(store)
    assert points(store, run, "loss") == lines(tmp_path / "run", "loss") and len(points(store, run, "loss")) == 8
    assert points(store, run, "eval/loss") == lines(tmp_path / "run", "eval/loss")
    assert (run.info.status, run.info.run_name, run.data.params["trainer.epochs"]) == ("FINISHED", "run", "2")
    assert run.data.params["about.model"] == "Sequential"
    for one, other in zip(plain.model.parameters(), logged.model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_run_that_is_resumed_goes_on_as_the_same_run(tmp_path, store):
    logger = MLflowLogger(experiment="mine", tags={"team": "a"})
    trainer(tmp_path / "run", logger, max_steps=3).fit()
    trainer(tmp_path / "run", logger, max_steps=6).fit(resume=tmp_path / "run")
    (run,) = runs_of(store, "mine")
    assert [step for step, _ in points(store, run, "loss")] == [1, 2, 3, 4, 5, 6]
    assert (run.info.status, run.data.tags["team"]) == ("FINISHED", "a")
    assert run.data.params["trainer.max_steps"] == "3"  # MLflow lets no parameter change


def test_a_run_of_the_users_own_is_used_and_left_open(tmp_path, store):
    import mlflow

    with mlflow.start_run() as active:
        trainer(tmp_path / "run", "mlflow", max_steps=2).fit()
        assert store.get_run(active.info.run_id).info.status == "RUNNING"
        mlflow.log_metric("own", 1.0)
    (run,) = runs_of(store)
    assert run.info.run_id == active.info.run_id and {"own", "loss"} <= set(run.data.metrics)


def test_how_the_run_ended_is_told(tmp_path, store):
    class Stops(brim.Callback):
        def __init__(self, error):
            self.error = error

        def on_step_end(self, trainer, step, loss):
            raise self.error

    for name, error in {"failed": RuntimeError("in the middle"), "killed": KeyboardInterrupt()}.items():
        with pytest.raises(type(error)):
            trainer(tmp_path / name, "mlflow", callbacks=[Stops(error)]).fit()
    assert {run.info.run_name: run.info.status for run in runs_of(store)} == {"failed": "FAILED", "killed": "KILLED"}


def test_names_that_mlflow_refuses_are_written_with_a_line_below(tmp_path, store):
    class Own(brim.Callback):
        def on_step_end(self, trainer, step, loss):
            trainer.log("ndcg@10", 0.5)

    trainer(tmp_path / "run", "mlflow", max_steps=1, callbacks=[Own()]).fit()
    assert runs_of(store)[0].data.metrics["ndcg_10"] == 0.5


def test_a_store_that_cannot_be_reached_ends_no_training(tmp_path):
    logger = MLflowLogger(tracking_uri="nonsense://nowhere")
    assert trainer(tmp_path / "run", logger, max_steps=2).fit().steps == 2
    assert "MLflowLogger failed and gets no more numbers: " in (tmp_path / "run" / "log.txt").read_text()


def test_many_numbers_are_sent_in_calls_of_a_size_that_mlflow_takes(tmp_path, store):
    (tmp_path / "run").mkdir()
    logger = MLflowLogger()
    logger.start(tmp_path / "run")
    logger.write(1, 1, {f"n{number}": float(number) for number in range(1100)})
    logger.close()
    (run,) = runs_of(store)
    assert len(run.data.metrics) == 1101  # with the epoch


def test_what_is_no_name_is_refused_in_a_sentence():
    with pytest.raises(ConfigError, match=r"experiment=.* is a text, and this is an int"):
        MLflowLogger(experiment=3)
