import math

import pytest
import torch
from torch.optim.lr_scheduler import ReduceLROnPlateau, StepLR

from brim.engine.components.schedule import Schedule, as_schedule, make_scheduler
from brim.errors import ConfigError


def optimizer():
    return torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1.0)


def rates(schedule, steps, total):
    sgd = optimizer()
    scheduler = make_scheduler(schedule, sgd, total)
    found = []
    for _ in range(steps):
        found.append(sgd.param_groups[0]["lr"])
        sgd.step()
        scheduler.step()
    return found


def test_warm_up_rises_to_the_full_rate_and_stays():
    assert rates(Schedule("constant", warmup=4), 6, None) == pytest.approx([0.25, 0.5, 0.75, 1, 1, 1])


def test_linear_falls_to_nothing_at_the_end():
    assert rates("linear", 4, 4) == pytest.approx([1, 0.75, 0.5, 0.25])


def test_cosine_with_a_floor_is_the_formula():
    expected = [0.1 + 0.9 * (1 + math.cos(math.pi * step / 8)) / 2 for step in range(8)]
    assert rates(Schedule("cosine", floor=0.1), 8, 8) == pytest.approx(expected)


def test_a_warm_up_below_one_is_a_share_of_the_run():
    assert rates({"name": "constant", "warmup": 0.5}, 4, 8) == pytest.approx([0.25, 0.5, 0.75, 1])


def test_constant_without_warm_up_needs_no_scheduler():
    assert make_scheduler("constant", optimizer(), 10) is None


@pytest.mark.parametrize("wanted", ["cosine", {"name": "constant", "warmup": 0.5}], ids=["cosine", "share"])
def test_a_schedule_of_unknown_length_is_refused_with_the_way_out(wanted):
    with pytest.raises(ConfigError, match="max_steps"):
        make_scheduler(wanted, optimizer(), None)


@pytest.mark.parametrize("wrong", ["cosin", {"name": "linear", "warmpu": 3}, {"warmup": -1}, {"floor": 2}])
def test_unknown_schedules_are_refused(wrong):
    with pytest.raises(ConfigError):
        as_schedule(wrong)


def test_functions_and_instances_are_taken_as_they_are():
    sgd = optimizer()
    made = make_scheduler(lambda o: StepLR(o, 2), sgd, None)
    assert isinstance(made, StepLR)
    plateau = ReduceLROnPlateau(sgd)
    assert make_scheduler(plateau, sgd, None) is plateau


@pytest.mark.parametrize("name", ["linear_with_warmup", "cosine_with_restarts", "polynomial", "onecycle"])
def test_a_name_of_another_librarys_is_met_with_what_there_is_and_the_way_for_others(name):
    with pytest.raises(
        ConfigError, match=r"brim.Schedule\('linear', warmup=100\); others are functions: scheduler=lambda"
    ):
        Schedule(name)


class ToldWhere:
    """As timm's schedules: they are told the epoch."""

    def step(self, epoch, metric=None): ...

    def state_dict(self): ...

    def load_state_dict(self, state): ...


class WithoutState:
    """A schedule by hand, as tutorials write them."""

    def step(self): ...


def test_a_schedule_that_a_checkpoint_could_not_hold_is_refused():
    sgd = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
    with pytest.raises(ConfigError, match="WithoutState without state_dict and load_state_dict"):
        make_scheduler(lambda optimizer: WithoutState(), sgd, 10)


def test_a_schedule_that_has_to_be_told_where_it_is_is_refused():
    sgd = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
    with pytest.raises(ConfigError, match="ToldWhere, whose step cannot be called without arguments"):
        make_scheduler(lambda optimizer: ToldWhere(), sgd, 10)
    assert make_scheduler(lambda optimizer: ReduceLROnPlateau(optimizer), sgd, 10) is not None
