"""What a run is put together of: refused before anything is written, and nothing left behind."""

import pytest
import torch
from helpers.running import assembly_of
from torch import nn

import brim
from brim.engine.trainer import run_now, run_of
from brim.errors import BrimError, ConfigError

X, Y = torch.randn(12, 2), torch.randn(12, 1)


def trainer(tmp_path, *data, **settings):
    held = data or ((X, Y),)
    return brim.Trainer(
        nn.Linear(2, 1), *held, loss_fn=nn.MSELoss(), device="cpu", threads=1, run_dir=tmp_path / "run", **settings
    )


def test_the_parts_are_what_the_run_reads_changes_and_is_judged_by(tmp_path):
    one = trainer(tmp_path, (X, Y), (X, Y), optimizer="SGD", lr=0.5, scheduler="linear", ema=0.9)
    parts = assembly_of(one).parts(one.train_data, one.eval_data, one.test_data)
    assert parts.state.model is one.model and parts.sharded is None
    assert type(parts.state.optimizer) is torch.optim.SGD and parts.state.scheduler is not None
    assert parts.state.ema is not None and one.precision.tells_if_stepped
    assert parts.evaluator.monitor == "loss" and sum(len(batch[0]) for batch in parts.feed.in_order()) == 12
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"patience": 2}, "there is no eval_data"),
        ({"monitor": "accuracy"}, "there is no eval_data"),
        ({"optimizer": "Adamm"}, "did you mean 'Adam'"),
        ({"scheduler": lambda optimizer: None}, "scheduler"),
    ],
    ids=["patience", "monitor", "optimizer", "scheduler"],
)
def test_what_cannot_work_is_refused_before_a_folder_is_made(tmp_path, settings, said):
    with pytest.raises(ConfigError, match=said):
        trainer(tmp_path, **settings).fit()
    assert not (tmp_path / "run").exists()


def test_a_trainer_makes_a_run_of_its_own_for_every_fit(tmp_path):
    one = trainer(tmp_path, epochs=1)
    assert run_of(one) is None
    one.fit()
    first = run_now(one)
    one.run_dir = tmp_path / "again"
    one.fit()
    assert run_now(one) is not first and run_now(one).state.optimizer is not first.state.optimizer
    assert run_now(one).stopping is not first.stopping and run_now(one).final is not first.final


def test_a_fit_that_failed_leaves_a_trainer_that_can_fit(tmp_path):
    class Fails(brim.Callback):
        def on_step_end(self, trainer, step, loss):
            if not failed:
                failed.append(step)
                raise ValueError("in the middle")

    failed = []
    one = trainer(tmp_path, callbacks=[Fails()])
    with pytest.raises((ValueError, BrimError), match="in the middle"):
        one.fit()
    one.run_dir = tmp_path / "again"
    assert one.fit().steps >= 1
