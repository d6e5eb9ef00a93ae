import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import ChainedScheduler, ReduceLROnPlateau, StepLR

from brim.errors import ConfigError
from brim.integrations.lightning.modules.optimizers import optimization_of

OPTIMIZER = torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=0.1)


def step(size=1):
    return StepLR(OPTIMIZER, size)


def plateau(mode="min"):
    return ReduceLROnPlateau(OPTIMIZER, mode=mode)


@pytest.mark.parametrize(
    "returned",
    [OPTIMIZER, [OPTIMIZER], (OPTIMIZER,), {"optimizer": OPTIMIZER}, [{"optimizer": OPTIMIZER}], ([OPTIMIZER], [])],
)
def test_an_optimizer_alone_in_all_its_forms(returned):
    made = optimization_of(returned)
    assert (made.optimizer, made.scheduler, made.every) == (OPTIMIZER, None, None)


@pytest.mark.parametrize(
    ("wrap", "every"),
    [
        (lambda s: ([OPTIMIZER], [s]), "epoch"),
        (lambda s: ([OPTIMIZER], s), "epoch"),
        (lambda s: {"optimizer": OPTIMIZER, "lr_scheduler": s}, "epoch"),
        (lambda s: {"optimizer": OPTIMIZER, "lr_scheduler": {"scheduler": s, "interval": "step"}}, "step"),
        (lambda s: ([OPTIMIZER], [{"scheduler": s, "interval": "step", "name": "lr"}]), "step"),
        (lambda s: [{"optimizer": OPTIMIZER, "lr_scheduler": {"scheduler": s}}], "epoch"),
    ],
)
def test_a_schedule_in_all_its_forms(wrap, every):
    schedule = step()
    made = optimization_of(wrap(schedule))
    assert (made.scheduler, made.every) == (schedule, every)


def test_several_schedules_of_one_count_are_chained():
    first, second = step(), step(2)
    made = optimization_of(([OPTIMIZER], [first, {"scheduler": second, "name": "slow"}]))
    assert isinstance(made.scheduler, ChainedScheduler) and made.every == "epoch"
    assert [(one.scheduler, one.name) for one in made.scheduled] == [(first, None), (second, "slow")]


def test_a_plateau_brings_its_metric_and_its_direction():
    beside = {"optimizer": OPTIMIZER, "lr_scheduler": plateau("max"), "monitor": "val_acc"}
    within = {"optimizer": OPTIMIZER, "lr_scheduler": {"scheduler": plateau("max"), "monitor": "val_acc"}}
    for returned in (beside, within):
        made = optimization_of(returned)
        assert (made.monitor, made.mode, made.every) == ("val_acc", "max", None)


def test_keys_that_mean_nothing_are_warned_about():
    told = []
    optimization_of(([OPTIMIZER], [{"scheduler": step(), "intervall": "step"}]), told.append)
    assert told == ["'intervall' in the lr_scheduler of configure_optimizers mean nothing, as in Lightning"]


@pytest.mark.parametrize(
    ("returned", "sentence"),
    [
        (None, "returns None"),
        ([OPTIMIZER, OPTIMIZER], "returns 2 optimizers"),
        (([OPTIMIZER, OPTIMIZER], []), "returns 2 optimizers"),
        ("adam", "returns a str"),
        ({"lr_scheduler": 1}, 'without "optimizer"'),
        ([nn.Linear(1, 1)], "returns a Linear where an optimizer"),
        (([OPTIMIZER], [{"interval": "step"}]), 'without "scheduler"'),
        (([OPTIMIZER], [{"scheduler": step(), "interval": "batch"}]), "interval='batch'"),
        (([OPTIMIZER], [{"scheduler": step(), "frequency": 2}]), "frequency=2"),
        (([OPTIMIZER], [step(), {"scheduler": step(), "interval": "step"}]), "of steps and of epochs"),
        (([OPTIMIZER], [plateau()]), "needs the metric that it follows"),
        (([OPTIMIZER], [{"scheduler": plateau(), "monitor": "a"}, step()]), "beside another schedule"),
        (([OPTIMIZER], [{"scheduler": plateau(), "monitor": "a", "interval": "step"}]), "waits for evaluations"),
        (([OPTIMIZER], [{"scheduler": step(), "reduce_on_plateau": True}]), "reduce_on_plateau is for torch's"),
    ],
)
def test_what_brims_loop_cannot_do_is_refused(returned, sentence):
    with pytest.raises(ConfigError, match=sentence):
        optimization_of(returned)
