"""A learning rate for more ranks: only where it is asked for, and with a warm-up."""

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import StepLR

import brim
from brim.engine.components.schedule import WARM_UP, Schedule, lr_factor, scale_optimizer, with_warm_up
from brim.engine.distributed.ranks import Ranks
from brim.errors import ConfigError


def test_factors():
    assert [lr_factor("linear", n) for n in (1, 2, 8)] == [1, 2, 8]
    assert lr_factor("sqrt", 9) == pytest.approx(3)
    assert lr_factor(None, 8) == 1


def test_every_group_is_scaled():
    parameters = [nn.Parameter(torch.ones(1)) for _ in range(2)]
    optimizer = torch.optim.SGD([{"params": parameters[:1], "lr": 0.5}, {"params": parameters[1:]}], lr=0.1)
    scale_optimizer(optimizer, 2)
    assert [group["lr"] for group in optimizer.param_groups] == [1.0, 0.2]


def test_a_schedule_gets_a_warm_up_unless_it_has_one_or_is_the_users():
    assert with_warm_up(None) == Schedule("constant", WARM_UP)
    assert with_warm_up("cosine") == Schedule("cosine", WARM_UP)
    assert with_warm_up({"name": "linear", "warmup": 10}) == Schedule("linear", 10)
    own = lambda optimizer: StepLR(optimizer, 1)  # noqa: E731
    assert with_warm_up(own) is own


def trainer_for(ranks: int, tmp_path, **settings):
    data = (torch.randn(64, 4), torch.randn(64, 1))
    made = brim.Trainer(
        nn.Linear(4, 1), brim.Loader(data, 8), loss_fn=nn.MSELoss(), device="cpu", lr=0.01, epochs=5, **settings
    )
    made.ranks = Ranks(0, ranks)
    made.ranks.is_alone = True  # there is nobody else to exchange anything with
    return made


@pytest.mark.parametrize(("rule", "expected"), [(None, 0.01), ("linear", 0.04), ("sqrt", 0.02)])
def test_a_trainer_scales_for_its_ranks_when_asked(tmp_path, rule, expected):
    _, state, _ = trainer_for(4, tmp_path, scale_lr=rule)._assemble()
    assert (state.scheduler is not None) == (rule is not None)
    rates = []
    for _ in range(6):
        rates.append(state.optimizer.param_groups[0]["lr"])
        state.optimizer.step()
        if state.scheduler is not None:
            state.scheduler.step()
    assert rates[-1] == pytest.approx(expected)
    assert rates == sorted(rates) and (rule is None or rates[0] < expected)


@pytest.mark.parametrize(("rule", "expected"), [(None, 0.01), ("linear", 0.04), ("sqrt", 0.02)])
def test_a_trainer_scales_for_gpus_of_one_process_too(tmp_path, capsys, rule, expected):
    trainer = trainer_for(1, tmp_path, scale_lr=rule)
    trainer.devices = [torch.device("cpu")] * 4
    _, state, _ = trainer._assemble()
    assert state.optimizer.param_groups[0].get("initial_lr", 0.01) == pytest.approx(expected)
    assert ("lr is" in capsys.readouterr().err) == (rule is not None)


def test_what_was_scaled_for_is_said(tmp_path, capsys):
    trainer = trainer_for(1, tmp_path, scale_lr="linear")
    trainer.devices = [torch.device("cpu")] * 4
    trainer._assemble()
    assert "scale_lr='linear': lr is 0.04 for 4 GPUs, after a warm-up" in capsys.readouterr().err


def test_alone_nothing_is_scaled(tmp_path):
    _, state, _ = trainer_for(1, tmp_path, scale_lr="linear")._assemble()
    assert state.optimizer.param_groups[0]["lr"] == 0.01 and state.scheduler is None


def test_another_rule_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="scale_lr='lineer' is not known; did you mean 'linear'"):
        trainer_for(1, tmp_path, scale_lr="lineer")
