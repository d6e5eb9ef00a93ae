"""What a schedule counts by default, and the rate at the end, told without touching the schedule."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler as lrs

from brim.engine.components.schedule_unit import EPOCH, EVALUATION, STEP, forecast_rate, unit_of
from brim.errors import ConfigError


def adam(lr=0.1):
    weights = [nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(3))]
    return torch.optim.AdamW([{"params": weights[:1]}, {"params": weights[1:], "lr": lr / 10}], lr=lr)


KINDS = {
    "step": (lambda o: lrs.StepLR(o, 3), EPOCH),
    "milestones": (lambda o: lrs.MultiStepLR(o, [2, 5]), EPOCH),
    "exponential": (lambda o: lrs.ExponentialLR(o, 0.9), EPOCH),
    "cosine of epochs": (lambda o: lrs.CosineAnnealingLR(o, 10), EPOCH),
    "cosine of steps": (lambda o: lrs.CosineAnnealingLR(o, 11), STEP),
    "one cycle": (lambda o: lrs.OneCycleLR(o, 0.2, total_steps=40), STEP),
    "one cycle without momentum": (lambda o: lrs.OneCycleLR(o, 0.2, total_steps=40, cycle_momentum=False), STEP),
    "linear": (lambda o: lrs.LinearLR(o, 0.1, total_iters=5), STEP),
    "lambda": (lambda o: lrs.LambdaLR(o, lambda step: 1 / (1 + step)), STEP),
    "product": (lambda o: lrs.MultiplicativeLR(o, lambda step: 0.9), STEP),
    "polynomial": (lambda o: lrs.PolynomialLR(o, 30), STEP),
    "cyclic": (lambda o: lrs.CyclicLR(o, 0.01, 0.1, 4, cycle_momentum=False), STEP),
    "restarts": (lambda o: lrs.CosineAnnealingWarmRestarts(o, 7), STEP),
    "sequence": (lambda o: lrs.SequentialLR(o, [lrs.LinearLR(o, 0.1), lrs.ExponentialLR(o, 0.9)], [5]), STEP),
    "chain": (lambda o: lrs.ChainedScheduler([lrs.LinearLR(o, 0.1), lrs.ExponentialLR(o, 0.9)]), STEP),
}  # fmt: skip


@pytest.mark.parametrize("name", KINDS)
def test_the_default_is_what_people_write_such_a_schedule_in(name):
    make, unit = KINDS[name]
    made = make(adam())
    assert unit_of(make, made, None, epochs=10, max_steps=None) == unit
    assert unit_of(make, made, None, epochs=10, max_steps=100) == STEP
    for asked in (STEP, EPOCH):
        assert unit_of(make, made, asked, epochs=10, max_steps=None) == asked


def test_names_count_steps_and_a_plateau_evaluations():
    assert unit_of("cosine", None, None, 10, None) == unit_of(None, None, STEP, 10, None) == STEP
    plateau = lrs.ReduceLROnPlateau(adam())
    assert unit_of(plateau, plateau, None, 10, None) == EVALUATION
    with pytest.raises(ConfigError, match="eval_every="):
        unit_of(plateau, plateau, EPOCH, 10, None)
    with pytest.raises(ConfigError, match="leave it out"):
        unit_of("cosine", None, EPOCH, 10, None)


@pytest.mark.parametrize("done", [0, 4])
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_rate_at_the_end_is_the_one_that_steps_come_to(name, done):
    optimizer = adam()
    scheduler = KINDS[name][0](optimizer)
    for _ in range(done):
        optimizer.step()
        scheduler.step()
    state, groups = copy.deepcopy(scheduler.state_dict()), [group["lr"] for group in optimizer.param_groups]
    told = forecast_rate(scheduler, done, 25)
    assert [group["lr"] for group in optimizer.param_groups] == groups
    assert str(scheduler.state_dict()) == str(state)
    for _ in range(24 - done):
        optimizer.step()
        scheduler.step()
    assert told.now == groups[0] and told.last == pytest.approx(optimizer.param_groups[0]["lr"], rel=1e-6)


def test_a_function_of_the_users_is_called_without_a_trace():
    calls = []

    def rate(step):
        calls.append(step)
        return 1 / (1 + step)

    scheduler = lrs.LambdaLR(adam(), rate)
    before = list(calls)
    assert forecast_rate(scheduler, 0, 1_000_000).last == pytest.approx(1e-7)
    assert calls == before


def test_what_cannot_be_told_has_a_reason():
    def table(step):
        return [1.0, 0.5][step]

    assert "IndexError" in forecast_rate(lrs.LambdaLR(adam(), table), 0, 9).trouble
    assert "not known" in forecast_rate(lrs.StepLR(adam(), 3), 0, None).trouble
    restarts = lrs.CosineAnnealingWarmRestarts(adam(), 7)
    assert "steps before it" in forecast_rate(restarts, 0, 10**7).trouble
    assert forecast_rate(restarts, 3, 3).last == restarts.optimizer.param_groups[0]["lr"]
    assert math.isclose(forecast_rate(restarts, 0, 1).now, 0.1)
