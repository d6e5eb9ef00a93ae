"""With the real library, offline: nothing leaves the machine."""

import json
import random

import numpy as np
import pytest
import torch
from helpers.small_training import X, Y, net, sgd
from helpers.wandb_files import history, of_kind, offline_runs
from torch import nn

import brim
from brim.errors import ConfigError
from brim.record.loggers import WandbLogger

pytestmark = pytest.mark.slow  # wandb starts a process of its own for each session


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    pytest.importorskip("wandb", reason="the library wandb is not installed")  # its import takes a second
    for name, value in {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "WANDB_CONSOLE": "off"}.items():
        monkeypatch.setenv(name, value)
    for name in ("WANDB_PROJECT", "WANDB_DIR"):
        monkeypatch.delenv(name, raising=False)


def trainer(folder, loggers, **settings):
    chosen = {"epochs": 2, "log_every": 1, "device": "cpu", "threads": 1, "loss_fn": nn.MSELoss(), **settings}
    loader = brim.Loader((X, Y), batch_size=10)
    return brim.Trainer(net(), loader, (X, Y), optimizer=sgd, run_dir=folder, loggers=loggers, **chosen)


def lines(folder):
    found = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "time"} for line in found]


def config_of(path):
    updates = [one for part in [of_kind(path, "run")[0].config, *of_kind(path, "config")] for one in part.update]
    return {one.key or ".".join(one.nested_key): json.loads(one.value_json) for one in updates}


def test_it_has_every_line_of_the_run_and_its_settings_and_the_training_is_the_same(tmp_path):
    plain = trainer(tmp_path / "plain", False)
    plain.fit()
    logged = trainer(tmp_path / "run", "wandb")
    logged.fit()
    (path,) = offline_runs(tmp_path / "run")
    assert history(path) == lines(tmp_path / "run") and len(history(path)) == 10  # 8 steps, 2 evaluations
    run, config = of_kind(path, "run")[0], config_of(path)
    assert (run.project, run.display_name) == ("brim", "run")
    assert config["trainer"]["epochs"] == 2 and config["about"]["model"] == "Sequential"
    for one, other in zip(plain.model.parameters(), logged.model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_run_that_is_resumed_goes_on_as_the_same_run(tmp_path):
    trainer(tmp_path / "run", WandbLogger(project="mine"), max_steps=3).fit()
    trainer(tmp_path / "run", WandbLogger(project="mine"), max_steps=6).fit(resume=tmp_path / "run")
    first, second = offline_runs(tmp_path / "run")
    of_first, of_second = of_kind(first, "run")[0], of_kind(second, "run")[0]
    assert (of_first.run_id, of_first.project) == (of_second.run_id, of_second.project) and of_second.resume
    assert [line["step"] for line in history(first) + history(second) if "loss" in line] == [1, 2, 3, 4, 5, 6]


def test_numbers_are_drawn_over_the_steps_of_the_run(tmp_path):
    trainer(tmp_path / "run", "wandb", max_steps=2).fit()
    (path,) = offline_runs(tmp_path / "run")
    axes = {one.name: one.step_metric for one in of_kind(path, "metric")}
    assert axes["loss"] == axes["eval/loss"] == "step"


def test_a_run_of_the_users_own_is_used_and_left_open(tmp_path):
    import wandb

    with wandb.init(project="theirs", dir=tmp_path, config={"trainer": "theirs"}) as active:
        trainer(tmp_path / "one", "wandb", max_steps=2).fit()
        trainer(tmp_path / "two", active, max_steps=2).fit()
        active.log({"own": 1.0})
    (path,) = offline_runs(tmp_path)
    assert [line.get("step") for line in history(path) if "loss" in line] == [1, 2, 1, 2]
    assert history(path)[-1] == {"own": 1} and not offline_runs(tmp_path / "one")
    config = config_of(path)
    assert config["trainer"] == "theirs" and config["brim"]["trainer"]["max_steps"] == 2


def test_another_run_beside_the_users_own_where_it_is_asked_for(tmp_path):
    import wandb

    with wandb.init(project="theirs", dir=tmp_path) as active:
        trainer(tmp_path / "one", WandbLogger(project="other"), max_steps=1).fit()
        active.log({"own": 1.0})
    assert len(offline_runs(tmp_path)) == 1 and len(offline_runs(tmp_path / "one")) == 1


def test_how_the_run_ended_is_told(tmp_path):
    class Fails(brim.Callback):
        def on_step_end(self, trainer, step, loss):
            raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        trainer(tmp_path / "failed", "wandb", callbacks=[Fails()]).fit()
    try:
        raise ValueError("of before")
    except ValueError:
        trainer(tmp_path / "whole", "wandb", max_steps=1).fit()  # another error, which is not this run's
    codes = [of_kind(offline_runs(tmp_path / name)[0], "exit")[0].exit_code for name in ("failed", "whole")]
    assert codes == [1, 0]


def test_a_library_that_fails_ends_no_training(tmp_path):
    result = trainer(tmp_path / "run", WandbLogger(mode="nonsense"), max_steps=2).fit()
    assert result.steps == 2
    assert "WandbLogger failed and gets no more numbers: " in (tmp_path / "run" / "log.txt").read_text()


def test_fast_dev_run_makes_no_run_there(tmp_path, monkeypatch):
    import wandb

    made = []  # a logger that raises ends no training, so that raising here would show nothing
    monkeypatch.setattr(wandb, "init", lambda **arguments: made.append(arguments))
    trainer(tmp_path / "run", ["wandb", "csv"], fast_dev_run=True).fit()
    assert made == []


def test_random_numbers_are_what_they_were(tmp_path):
    (tmp_path / "run").mkdir()
    random.seed(0)
    np.random.seed(0)
    before = random.getstate(), np.random.get_state()[1].tolist()
    logger = WandbLogger()
    logger.start(tmp_path / "run")
    logger.write(1, 1, {"loss": 0.5})
    logger.close()
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before


def test_a_run_with_a_project_is_refused_in_a_sentence():
    with pytest.raises(ConfigError, match="leave the other arguments out"):
        WandbLogger(project="p", run=object())
