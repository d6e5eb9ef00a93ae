"""What the loggers ask of wandb and of MLflow, noted instead of done: the libraries take seconds to start."""

import sys
from types import ModuleType, SimpleNamespace

import pytest
from helpers.clock import Clock
from helpers.runs import write_run

from brim.errors import ConfigError
from brim.record.loggers import MLflowLogger, WandbLogger, mlflow_logger


@pytest.fixture
def folder(tmp_path):
    return write_run(tmp_path / "mine", about={"model": "Net"})


class Store:
    """As much of a store of MLflow as a run uses."""

    def __init__(self):
        self.experiments, self.runs, self.calls = {}, {}, []

    def get_experiment_by_name(self, name):
        known = self.experiments.get(name)
        return known and SimpleNamespace(experiment_id=known)

    def create_experiment(self, name):
        return self.experiments.setdefault(name, str(len(self.experiments) + 1))

    def create_run(self, experiment_id, run_name):
        run_id = f"run-{len(self.runs) + 1}"
        self.runs[run_id] = SimpleNamespace(
            experiment=experiment_id, name=run_name, status="RUNNING", tags={}, metrics=[],
            data=SimpleNamespace(params={}), info=SimpleNamespace(run_id=run_id),
        )  # fmt: skip
        return self.runs[run_id]

    def get_run(self, run_id):
        return self.runs[run_id]

    def update_run(self, run_id, status):
        self.runs[run_id].status = status

    set_terminated = update_run

    def set_tag(self, run_id, tag, value):
        self.runs[run_id].tags[tag] = value

    def log_batch(self, run_id, metrics=(), params=()):
        run = self.runs[run_id]
        self.calls.append(len(metrics) or len(params))
        run.metrics += [(one.key, one.value, one.step) for one in metrics]
        assert not run.data.params.keys() & {one.key for one in params}, "MLflow lets no parameter change"
        run.data.params.update({one.key: one.value for one in params})


@pytest.fixture
def store(monkeypatch):
    made, mlflow, entities = Store(), ModuleType("mlflow"), ModuleType("mlflow.entities")
    mlflow.active_run, mlflow.get_tracking_uri = lambda: None, lambda: "sqlite:///a.db"
    mlflow.MlflowClient = lambda tracking_uri: made
    entities.Metric = lambda key, value, timestamp, step: SimpleNamespace(key=key, value=value, step=step)
    entities.Param = lambda key, value: SimpleNamespace(key=key, value=value)
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    monkeypatch.setitem(sys.modules, "mlflow.entities", entities)
    monkeypatch.setattr(mlflow_logger, "time", Clock())
    for name in ("MLFLOW_EXPERIMENT_ID", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.delenv(name, raising=False)
    return made


def logged(logger, folder, *lines, after=0.0):
    logger.start(folder)
    for step, numbers in enumerate(lines, 1):
        mlflow_logger.time.sleep(after)
        logger.write(step, 1, numbers)
    logger.close()


def test_mlflow_gets_the_settings_every_number_and_the_end(store, folder):
    logged(MLflowLogger(), folder, {"ndcg@10": 0.5}, {"loss": 2})
    (run,) = store.runs.values()
    assert (run.experiment, run.name, run.status) == ("0", "mine", "FINISHED")
    assert run.data.params == {"trainer.lr": "0.1", "trainer.epochs": "3", "about.model": "Net"}
    assert run.metrics == [("ndcg_10", 0.5, 1), ("epoch", 1.0, 1), ("loss", 2.0, 2), ("epoch", 1.0, 2)]


def test_mlflow_gets_the_numbers_of_a_second_at_once(store, folder):
    logged(MLflowLogger(), folder, *[{"loss": 1.0}] * 4, after=0.4)
    assert store.calls == [3, 6, 2]  # the settings, then three lines after 1.2 s, then what is left


def test_mlflow_gets_no_more_in_a_call_than_it_takes(store, folder, monkeypatch):
    monkeypatch.setattr(mlflow_logger, "MOST_NUMBERS", 4)
    monkeypatch.setattr(mlflow_logger, "MOST_PARAMS", 2)
    logged(MLflowLogger(), folder, {f"n{number}": 0.0 for number in range(8)})
    assert store.calls == [2, 1, 4, 4, 1]


def test_a_resumed_run_is_the_same_run_of_mlflow_and_its_first_settings_stay(store, folder):
    logged(MLflowLogger(tags={"team": "a"}), folder, {"loss": 1.0})
    (folder / "config.yaml").write_text("trainer: {lr: 0.2, seed: 1}\n")
    logged(MLflowLogger(tags={"team": "b"}), folder, {"loss": 2.0})
    (run,) = store.runs.values()
    assert (run.data.params["trainer.lr"], run.data.params["trainer.seed"], run.tags) == ("0.1", "1", {"team": "b"})
    assert [value for name, value, _ in run.metrics if name == "loss"] == [1.0, 2.0]
    logged(MLflowLogger(tracking_uri="sqlite:///another.db"), folder, {"loss": 2.0})
    assert len(store.runs) == 2


def test_an_open_run_of_the_users_is_taken_and_left_open(store, folder):
    own = store.create_run("0", "own")
    sys.modules["mlflow"].active_run = lambda: own
    logged(MLflowLogger(), folder, {"loss": 1.0})
    assert list(store.runs) == ["run-1"] and own.status == "RUNNING" and len(own.metrics) == 2
    logged(MLflowLogger(name="beside"), folder, {"loss": 1.0})  # asked for
    assert store.runs["run-2"].name == "beside" and store.runs["run-2"].status == "FINISHED"


@pytest.mark.parametrize(
    ("variables", "experiment", "chosen"),
    [
        ({"MLFLOW_EXPERIMENT_ID": "7"}, None, "7"),
        ({"MLFLOW_EXPERIMENT_ID": "7", "MLFLOW_EXPERIMENT_NAME": "of the shell"}, None, "7"),
        ({"MLFLOW_EXPERIMENT_NAME": "known"}, None, "1"),
        ({"MLFLOW_EXPERIMENT_ID": "7"}, "new", "2"),
    ],
)
def test_the_experiment_is_the_one_that_is_named_or_set(store, folder, monkeypatch, variables, experiment, chosen):
    store.create_experiment("known")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    logged(MLflowLogger(experiment=experiment), folder)
    assert store.runs["run-1"].experiment == chosen


def test_mlflow_is_told_of_an_error(store, folder):
    logger = MLflowLogger()
    logger.start(folder)
    with pytest.raises(ValueError):
        try:
            raise ValueError
        finally:
            logger.close()
    logger.close()  # once is enough
    assert store.runs["run-1"].status == "FAILED"


def test_a_name_for_mlflow_is_a_text():
    with pytest.raises(ConfigError, match=r"experiment=.* is a text, and this is an int"):
        MLflowLogger(experiment=3)


class WandbRun:
    def __init__(self, id="of-the-user", **arguments):
        self.id, self.arguments, self.lines, self.axes, self.exit_code = id, arguments, [], [], None
        self.facts = {}
        self.config = SimpleNamespace(update=lambda facts, allow_val_change: self.facts.update(facts))

    def define_metric(self, name, step_metric=None):
        self.axes.append((name, step_metric))

    def log(self, line):
        self.lines.append(line)

    def finish(self, exit_code):
        self.exit_code = exit_code


@pytest.fixture
def wandb(monkeypatch):
    module = ModuleType("wandb")
    module.run, module.made = None, []

    def init(**arguments):
        module.made.append(WandbRun(**{"id": f"id-{len(module.made)}", **arguments}))
        return module.made[-1]

    module.init = init
    monkeypatch.setitem(sys.modules, "wandb", module)
    for name in ("WANDB_PROJECT", "WANDB_DIR"):
        monkeypatch.delenv(name, raising=False)
    return module


def tracked(logger, folder):
    logger.start(folder)
    logger.write(1, 1, {"loss": 2.0})
    logger.write(2, 1, {"loss": 1.0, "lr": 0.1})
    logger.close()


def test_wandb_gets_the_settings_and_every_line_over_its_step(wandb, folder):
    tracked(WandbLogger(), folder)
    (run,) = wandb.made
    assert run.arguments == {"project": "brim", "name": "mine", "dir": str(folder)}
    assert run.facts == {"trainer": {"lr": 0.1, "epochs": 3}, "about": {"model": "Net"}}
    assert run.lines == [{"step": 1, "epoch": 1, "loss": 2.0}, {"step": 2, "epoch": 1, "loss": 1.0, "lr": 0.1}]
    assert run.axes == [("step", None), ("loss", "step"), ("lr", "step")] and run.exit_code == 0


def test_a_resumed_run_is_the_same_run_of_wandb_in_its_project(wandb, folder, monkeypatch):
    tracked(WandbLogger(project="first"), folder)
    monkeypatch.setenv("WANDB_PROJECT", "of the shell")
    monkeypatch.setenv("WANDB_DIR", "/elsewhere")
    tracked(WandbLogger(name="again", mode="offline"), folder)
    assert wandb.made[1].id == "id-0" and wandb.made[1].arguments == {
        "project": "first", "name": "again", "resume": "allow", "mode": "offline",
    }  # fmt: skip


@pytest.mark.parametrize("how", ["given", "active"])
def test_a_run_of_the_users_keeps_its_names_and_stays_open(wandb, folder, how):
    own = WandbRun()
    wandb.run = own if how == "active" else None
    tracked(WandbLogger(run=own) if how == "given" else WandbLogger(), folder)
    assert wandb.made == [] and own.exit_code is None and list(own.facts) == ["brim"] and len(own.lines) == 2


def test_another_run_beside_the_users_is_made_where_it_is_asked_for(wandb, folder):
    wandb.run = WandbRun()
    tracked(WandbLogger(project="beside"), folder)
    assert wandb.made[0].arguments["reinit"] == "create_new" and wandb.run.lines == []


def test_wandb_is_told_of_an_error(wandb, folder):
    logger = WandbLogger()
    logger.start(folder)
    with pytest.raises(ValueError):
        try:
            raise ValueError
        finally:
            logger.close()
    logger.close()
    assert wandb.made[0].exit_code == 1


def test_a_run_has_its_project_already():
    with pytest.raises(ConfigError, match="has its project and name already"):
        WandbLogger(run=WandbRun(), project="another")
