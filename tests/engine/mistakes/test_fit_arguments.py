from pathlib import Path

import pytest
import torch
from torch import nn

import brim
from brim.engine.mistakes.fit_arguments import check_fit_arguments
from brim.errors import ConfigError


def small(**settings):
    x = torch.randn(4, 2)
    return brim.Trainer(nn.Linear(2, 1), (x, x[:, :1]), loss_fn=nn.MSELoss(), device="cpu", threads=1, **settings)


@pytest.mark.parametrize("given", [(False, None, None), (True, "a.pt", "auto"), (True, Path("a.pt"), Path("runs"))])
def test_what_fit_takes_passes(given):
    check_fit_arguments(*given)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (([(1, 2)], None, None), r"got a list: they are Trainer\(model, train_data"),
        ((nn.Linear(1, 1), None, None), "got a model"),
        ((False, 3, None), "model_path="),
        ((False, None, True), "resume=True does not say which run"),
        ((False, None, ""), "resume='' names no run folder"),
    ],
)
def test_what_other_trainers_take_is_refused(given, told):
    with pytest.raises(ConfigError, match=told):
        check_fit_arguments(*given)


@pytest.mark.parametrize("reason", [None, True, "", "  ", 3])
def test_a_run_is_stopped_with_a_reason_in_words(tmp_path, reason):
    class Stop(brim.Callback):
        def on_step_end(self, trainer, step, loss):
            trainer.stop(reason)

    with pytest.raises(ConfigError, match="stop takes why the run ends, in words, and got"):
        small(callbacks=[Stop()], run_dir=tmp_path / "run").fit()


def test_stop_without_a_reason_says_what_it_takes():
    with pytest.raises(ConfigError, match=r"stop: missing a required argument: 'reason'"):
        small().stop()


def test_stop_says_that_there_is_nothing_to_stop(tmp_path, capsys):
    trainer = small(run_dir=tmp_path / "run")
    trainer.stop("before")
    assert trainer.fit().ended == "done"
    trainer.stop("after")
    told = capsys.readouterr().err
    assert all(f"stop('{when}') has no effect: no run goes on" in told for when in ("before", "after"))
