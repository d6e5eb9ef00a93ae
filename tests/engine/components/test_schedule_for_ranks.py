"""A learning rate for more ranks: only where it is asked for, and with a warm-up."""

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import StepLR

import brim
from brim.engine.components.schedule import WARM_UP, Schedule, lr_factor, scale_optimizer, with_warm_up
from brim.engine.components.settings import TrainerSettings
from brim.engine.control.run_schedule import RunSchedule
from brim.errors import ConfigError
from brim.record import Journal


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


def scheduled(rule, ranks=1, gpus=1):
    """An optimizer at a rate of 0.01, and the schedule of a run of 40 steps."""
    optimizer = torch.optim.SGD(nn.Linear(4, 1).parameters(), lr=0.01)
    schedule = RunSchedule(None, TrainerSettings(scale_lr=rule, epochs=5), Journal())
    scheduler, _ = schedule.make(optimizer, total_steps=40, ranks=ranks, gpus=gpus)
    return optimizer, scheduler


@pytest.mark.parametrize(("rule", "expected"), [(None, 0.01), ("linear", 0.04), ("sqrt", 0.02)])
@pytest.mark.parametrize("several", [{"ranks": 4}, {"gpus": 4}, {"ranks": 2, "gpus": 2}], ids=str)
def test_a_run_is_scaled_for_its_ranks_and_gpus_when_asked(rule, expected, several):
    optimizer, scheduler = scheduled(rule, **several)
    assert (scheduler is not None) == (rule is not None)
    rates = []
    for _ in range(6):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
    assert rates[-1] == pytest.approx(expected)
    assert rates == sorted(rates) and (rule is None or rates[0] < expected)


@pytest.mark.parametrize(("several", "said"), [({"ranks": 4}, "4 ranks"), ({"gpus": 4}, "4 GPUs")])
def test_what_was_scaled_for_is_said(capsys, several, said):
    scheduled("linear", **several)
    assert f"scale_lr='linear': lr is 0.04 for {said}, after a warm-up" in capsys.readouterr().err


def test_alone_nothing_is_scaled():
    optimizer, scheduler = scheduled("linear")
    assert optimizer.param_groups[0]["lr"] == 0.01 and scheduler is None


def test_a_trainer_scales_for_the_gpus_that_it_computes_on(tmp_path):
    data = brim.Loader((torch.randn(64, 4), torch.randn(64, 1)), 8)
    trainer = brim.Trainer(
        nn.Linear(4, 1), data, loss_fn=nn.MSELoss(), device="cpu", lr=0.01, scale_lr="linear", run_dir=tmp_path / "run"
    )
    vars(trainer)["devices"] = [torch.device("cpu")] * 4
    trainer.fit()
    assert trainer.optimizers[0].param_groups[0]["initial_lr"] == pytest.approx(0.04)


def test_another_rule_is_refused():
    with pytest.raises(ConfigError, match="scale_lr='lineer' is not known; did you mean 'linear'"):
        TrainerSettings(scale_lr="lineer").check()
