"""Optimizers for a graph: which are accepted, where their numbers live, how learning rates are followed."""

import copy

import pytest
import torch
from torch import nn, optim
from torch.optim.lr_scheduler import CyclicLR, LambdaLR, OneCycleLR

from brim.engine.captured.optimizers import (
    CAPTURABLE,
    FUSED,
    DeviceOptimizer,
    LearningRates,
    SettingsWatch,
    check_optimizer,
    settings_of,
)
from brim.engine.captured.report import Refusal
from brim.engine.step.eager_step import clip_to

CPU = torch.device("cpu")
ELSEWHERE = torch.device("meta")  # a device that is not the host


class OnTheCard(nn.Parameter):
    """A parameter that says it is on the GPU, for checks that look no further."""

    is_cuda = True


def on_the_card(dtype=torch.float32):
    return [OnTheCard(torch.zeros(3, dtype=dtype))]


def in_groups(kind=optim.SGD, **settings):
    one, two = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(3))
    return kind([{"params": [one]}, {"params": [two], "lr": 0.5}], lr=0.25, **settings)


def rates_of(optimizer):
    return [group["lr"] for group in optimizer.param_groups]


@pytest.mark.parametrize("kind", FUSED + CAPTURABLE)
def test_known_optimizers_are_accepted(kind):
    optimizer = kind(on_the_card(), lr=0.1)
    before = str(optimizer)
    check_optimizer(optimizer)
    assert str(optimizer) == before  # a check changes nothing


@pytest.mark.parametrize("kind", [optim.RAdam, optim.Adagrad, optim.LBFGS, optim.Adafactor])
def test_others_are_refused_with_those_that_could_be(kind):
    with pytest.raises(Refusal, match=rf"the optimizer {kind.__name__} keeps numbers on the host; Adam, AdamW, SGD, "):
        check_optimizer(kind(on_the_card(), lr=0.1))


def test_an_optimizer_that_a_user_derived_is_refused():
    class Mine(optim.Adam):
        pass

    with pytest.raises(Refusal, match="the optimizer Mine"):
        check_optimizer(Mine(on_the_card()))


@pytest.mark.parametrize("kind", ["register_step_pre_hook", "register_step_post_hook"])
def test_hooks_around_the_step_are_refused_until_they_are_taken_away(kind):
    optimizer = optim.SGD(on_the_card(), lr=0.1)
    handle = getattr(optimizer, kind)(lambda *_: None)
    with pytest.raises(Refusal, match="SGD has hooks"):
        check_optimizer(optimizer)
    handle.remove()
    check_optimizer(optimizer)


def test_a_differentiable_optimizer_is_refused():
    with pytest.raises(Refusal, match="SGD is differentiable"):
        check_optimizer(optim.SGD(on_the_card(), lr=0.1, differentiable=True))


@pytest.mark.parametrize("parameters", [[nn.Parameter(torch.zeros(2))], on_the_card(torch.complex64)])
def test_parameters_on_the_host_and_complex_ones_are_refused(parameters):
    with pytest.raises(Refusal, match="not a real number on the GPU"):
        check_optimizer(optim.SGD([*on_the_card(), *parameters], lr=0.1))


def test_frozen_parameters_may_be_anywhere():
    elsewhere = nn.Parameter(torch.zeros(2))
    optimizer = optim.SGD([*on_the_card(), elsewhere], lr=0.1)
    with pytest.raises(Refusal):
        check_optimizer(optimizer)
    elsewhere.requires_grad_(False)
    check_optimizer(optimizer)


@pytest.mark.parametrize("given", [{}, {"fused": True}, {"foreach": True}, {"foreach": False, "fused": False}])
@pytest.mark.parametrize("kind", FUSED)
def test_fused_optimizers_become_fused_and_are_put_back(kind, given):
    optimizer = in_groups(kind, **given)
    groups, attributes = [dict(group) for group in optimizer.param_groups], set(vars(optimizer))
    on_device = DeviceOptimizer(optimizer)
    assert all(group["fused"] is True and group["foreach"] is False for group in optimizer.param_groups)
    assert optimizer._step_supports_amp_scaling
    on_device.undo()
    assert [{**group} for group in optimizer.param_groups] == groups
    assert set(vars(optimizer)) == attributes


@pytest.mark.parametrize("kind", CAPTURABLE)
def test_other_optimizers_keep_their_settings(kind):
    optimizer = kind([nn.Parameter(torch.ones(2))], lr=0.1)
    groups, attributes = [dict(group) for group in optimizer.param_groups], set(vars(optimizer))
    on_device = DeviceOptimizer(optimizer)
    assert [dict(group) for group in optimizer.param_groups] == groups
    on_device.undo()
    assert [dict(group) for group in optimizer.param_groups] == groups
    assert set(vars(optimizer)) == attributes


@pytest.mark.parametrize("kind", FUSED)
def test_the_fused_form_trains_the_same(kind):
    plain, fused = in_groups(kind, weight_decay=0.1), in_groups(kind, weight_decay=0.1)
    for number in range(6):
        if number == 3:  # in the middle, as capturing does
            DeviceOptimizer(fused)
        for optimizer in (plain, fused):
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    parameter.grad = parameter.detach() * 2 + number
            optimizer.step()
    for one, other in zip(plain.param_groups, fused.param_groups, strict=True):
        assert torch.allclose(one["params"][0], other["params"][0], rtol=1e-6, atol=0)


def test_numbers_on_the_host_move_to_the_device_and_back_with_what_they_became():
    parameter = OnTheCard(torch.zeros(2))
    optimizer = optim.Adam([parameter], lr=0.1)
    count = torch.tensor(3, dtype=torch.int64)
    optimizer.state[parameter] = {"step": count, "name": "kept as it is"}
    on_device = DeviceOptimizer(optimizer)
    moved = optimizer.state[parameter]["step"]
    assert moved is not count and moved.dtype is torch.float32 and float(moved) == 3
    moved.add_(2)
    on_device.undo()
    assert optimizer.state[parameter]["step"] is count and int(count) == 5
    assert optimizer.state[parameter]["name"] == "kept as it is"


def test_numbers_of_parameters_on_the_host_stay():
    optimizer = in_groups(optim.Adam)
    for group in optimizer.param_groups:
        group["params"][0].grad = torch.ones_like(group["params"][0])
    optimizer.step()
    before = [id(state["step"]) for state in optimizer.state.values()]
    DeviceOptimizer(optimizer).undo()
    assert [id(state["step"]) for state in optimizer.state.values()] == before


def test_learning_rates_that_stand_still_are_followed():
    optimizer = in_groups()
    rates = LearningRates(optimizer, CPU, move=False)
    assert rates.follow() and rates.follow()
    assert [float(tensor) for tensor in rates.tensors] == [0.25, 0.5]


@pytest.mark.parametrize("group", [0, 1])
def test_a_learning_rate_that_is_baked_in_must_not_move(group):
    optimizer = in_groups()
    rates = LearningRates(optimizer, CPU, move=False)
    optimizer.param_groups[group]["lr"] = 0.125
    assert not rates.follow()
    assert not rates.follow()  # nor is it taken for known the second time
    optimizer.param_groups[group]["lr"] = rates.values[group]
    assert rates.follow()


def test_learning_rates_that_move_are_written_into_the_same_memory():
    optimizer = in_groups()
    rates = LearningRates(optimizer, CPU, move=True)
    places = [tensor.data_ptr() for tensor in rates.tensors]
    schedule = LambdaLR(optimizer, lambda step: 1 / (1 + step))
    for _ in range(3):
        optimizer.step()
        schedule.step()
        assert rates.follow()
        assert [float(tensor) for tensor in rates.tensors] == pytest.approx(rates_of(optimizer))
    assert [tensor.data_ptr() for tensor in rates.tensors] == places


@pytest.mark.parametrize("kind", CAPTURABLE)
def test_only_fused_optimizers_read_a_learning_rate_that_moves(kind):
    optimizer = kind([nn.Parameter(torch.ones(2))], lr=0.25)
    rates = LearningRates(optimizer, CPU, move=True)
    optimizer.param_groups[0]["lr"] = 0.5
    assert not rates.follow()


def test_a_learning_rate_that_is_a_tensor_on_the_device_is_read_where_it_is():
    lr = torch.tensor(0.25)
    optimizer = optim.Adam([nn.Parameter(torch.ones(2))], lr=lr)
    rates = LearningRates(optimizer, CPU, move=True)
    lr.fill_(0.125)
    assert rates.follow()
    assert rates.tensors[0] is lr
    rates.probe(2.0)  # it belongs to the user
    assert float(lr) == 0.125


@pytest.mark.parametrize("move", [True, False])
def test_a_learning_rate_that_is_a_tensor_on_the_host_is_followed_like_a_number(move):
    """Fused kernels read it when they are launched, so a graph has it baked in; schedules write into it."""
    lr = torch.tensor(0.25)
    optimizer = optim.Adam([nn.Parameter(torch.ones(2))], lr=lr)
    rates = LearningRates(optimizer, ELSEWHERE, move)
    assert rates.follow()
    assert rates.tensors[0].device == ELSEWHERE
    lr.fill_(0.125)
    assert rates.follow() is move


@pytest.mark.parametrize("before", [0.25, torch.tensor(0.25)], ids=["a number", "a tensor"])
def test_another_tensor_for_a_learning_rate_is_told(before):
    optimizer = optim.Adam([nn.Parameter(torch.ones(2))], lr=before)
    rates = LearningRates(optimizer, CPU, move=True)
    optimizer.param_groups[0]["lr"] = torch.tensor(0.125)
    assert not rates.follow()


def test_a_number_in_place_of_a_tensor_is_followed():
    optimizer = optim.Adam([nn.Parameter(torch.ones(2))], lr=torch.tensor(0.25))
    rates = LearningRates(optimizer, CPU, move=True)
    optimizer.param_groups[0]["lr"] = 0.125
    assert rates.follow() and float(rates.tensors[0]) == 0.125


def test_learning_rates_are_moved_and_put_back_for_the_proof():
    rates = LearningRates(in_groups(), CPU, move=True)
    rates.probe(2.0)
    assert [float(tensor) for tensor in rates.tensors] == [0.5, 1.0]
    rates.probe(2.0)
    assert [float(tensor) for tensor in rates.tensors] == [0.5, 1.0]  # of what they are, not of what they were
    rates.refill()
    assert [float(tensor) for tensor in rates.tensors] == [0.25, 0.5]


def test_baked_in_learning_rates_are_not_moved_for_the_proof():
    rates = LearningRates(in_groups(), CPU, move=False)
    rates.probe(2.0)
    assert [float(tensor) for tensor in rates.tensors] == [0.25, 0.5]


def test_within_a_graph_the_groups_have_the_tensors():
    optimizer = in_groups(optim.Adam)
    rates = LearningRates(optimizer, CPU, move=True)
    with rates.on_device():
        assert all(one is other for one, other in zip(rates_of(optimizer), rates.tensors, strict=True))
        assert [group["capturable"] for group in optimizer.param_groups] == [True, True]
    assert rates_of(optimizer) == [0.25, 0.5] and all(type(rate) is float for rate in rates_of(optimizer))
    assert [group["capturable"] for group in optimizer.param_groups] == [False, False]


def test_while_they_stand_still_the_groups_keep_their_numbers_within_a_graph():
    optimizer = in_groups(optim.Adam)
    with LearningRates(optimizer, CPU, move=False).on_device():
        assert rates_of(optimizer) == [0.25, 0.5] and all(type(rate) is float for rate in rates_of(optimizer))
        assert all(group["capturable"] for group in optimizer.param_groups)


def test_the_groups_are_put_back_after_a_failure():
    optimizer = in_groups(optim.Adam)
    with pytest.raises(KeyError), LearningRates(optimizer, CPU, move=True).on_device():
        raise KeyError
    assert rates_of(optimizer) == [0.25, 0.5]
    assert not any(group["capturable"] for group in optimizer.param_groups)


def test_an_optimizer_without_that_setting_does_not_get_it():
    optimizer = in_groups(optim.SGD)
    with LearningRates(optimizer, CPU, move=True).on_device():
        assert not any("capturable" in group for group in optimizer.param_groups)
    assert not any("capturable" in group for group in optimizer.param_groups)


def test_a_step_with_tensors_for_learning_rates_trains_the_same():
    plain = in_groups(optim.SGD, momentum=0.5)
    moved = copy.deepcopy(plain)
    rates = LearningRates(moved, CPU, move=True)
    for number in range(4):
        for optimizer in (plain, moved):
            for group in optimizer.param_groups:
                group["lr"] = 2.0**-number
                group["params"][0].grad = group["params"][0].detach() + number
        plain.step()
        assert rates.follow()
        with rates.on_device():
            moved.step()
    for one, other in zip(plain.param_groups, moved.param_groups, strict=True):
        assert torch.equal(one["params"][0], other["params"][0])


def test_the_settings_do_not_hold_the_learning_rate():
    optimizer = in_groups()
    before = settings_of(optimizer)
    optimizer.param_groups[0]["lr"] = 1.0
    assert settings_of(optimizer) == before


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [(optim.SGD, "momentum", 0.5), (optim.SGD, "nesterov", True), (optim.Adam, "betas", (0.5, 0.9)),
     (optim.AdamW, "weight_decay", 0.5), (optim.Adam, "maximize", True)],
)  # fmt: skip
def test_other_settings_of_any_group_count(kind, name, value):
    optimizer = in_groups(kind)
    before = settings_of(optimizer)
    optimizer.param_groups[1][name] = value
    assert settings_of(optimizer) != before


def test_groups_and_parameters_that_are_added_count():
    optimizer = in_groups()
    before = settings_of(optimizer)
    optimizer.param_groups[0]["params"].append(nn.Parameter(torch.zeros(1)))
    assert settings_of(optimizer) != before
    optimizer = in_groups()
    optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(1))]})
    assert settings_of(optimizer) != before


@pytest.mark.parametrize(("initial", "usual"), [(None, 1e-3), (0.5, 0.5)])
def test_a_rate_of_zero_is_tried_with_a_usual_one(initial, usual):
    """Schedules that warm up begin with it, and at zero nothing could be seen."""
    optimizer = in_groups(optim.SGD)
    for group in optimizer.param_groups:
        group["lr"] = 0.0
        if initial is not None:
            group["initial_lr"] = initial
    rates = LearningRates(optimizer, CPU, move=True)
    rates.probe(2.0)
    assert [float(tensor) for tensor in rates.tensors] == pytest.approx([2 * usual] * 2)
    with rates.on_host():
        assert rates_of(optimizer) == [float(tensor) for tensor in rates.tensors]
    assert rates_of(optimizer) == [0.0, 0.0]
    rates.refill()
    assert [float(tensor) for tensor in rates.tensors] == [0.0, 0.0]


def with_gradients(kind, **settings):
    optimizer = in_groups(kind, **settings)
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = torch.ones_like(parameter)
    return optimizer


def test_for_a_while_an_optimizer_is_what_the_user_has_again():
    optimizer = with_gradients(optim.Adam)
    groups = [{**group} for group in optimizer.param_groups]
    on_device = DeviceOptimizer(optimizer)
    assert all(group["fused"] for group in optimizer.param_groups)
    with on_device.as_before():
        assert [{**group} for group in optimizer.param_groups] == groups
        assert not hasattr(optimizer, "_step_supports_amp_scaling")
        optimizer.step()
    assert all(group["fused"] for group in optimizer.param_groups) and optimizer._step_supports_amp_scaling
    on_device.undo()
    assert [{**group} for group in optimizer.param_groups] == groups


def test_counts_that_were_moved_to_the_device_go_on_there():
    optimizer = with_gradients(optim.Adam)
    optimizer.step()
    on_device = DeviceOptimizer(optimizer)
    (state, *_) = optimizer.state.values()
    moved, own = torch.tensor(7.0), state["step"]
    on_device._on_host = [(state, "step", own)]
    state["step"] = moved
    with on_device.as_before():
        assert state["step"] is own and float(own) == 7.0
        optimizer.step()
    assert state["step"] is moved and float(moved) == 8.0


@pytest.mark.parametrize("limit", [1e-3, 0.5, 3.0, 1e6])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_clip_by_a_limit_on_the_device_gives_torchs_bits(limit, dtype):
    torch.manual_seed(0)
    plain = [nn.Parameter(torch.randn(n, dtype=dtype)) for n in (3, 50, 7)]
    other = copy.deepcopy(plain)
    for one, two in zip(plain, other, strict=True):
        one.grad = torch.randn_like(one)
        two.grad = one.grad.clone()
    nn.utils.clip_grad_norm_(plain, limit)
    clip_to(torch.tensor(limit), [two.grad for two in other])
    assert all(torch.equal(one.grad, two.grad) for one, two in zip(plain, other, strict=True))


def test_there_may_be_nothing_to_clip():
    limit = torch.tensor(1.0)
    clip_to(limit, [])
    assert float(limit) == 1.0


def looks(optimizer, scheduler, steps=4):
    """What a watch says before each step of a schedule."""
    watch, said = SettingsWatch(optimizer), []
    for step in range(1, steps + 1):
        said.append(watch.look(step))
        optimizer.step()
        scheduler.step()
    return said


@pytest.mark.parametrize(
    ("kind", "schedule", "name"),
    [
        (optim.Adam, lambda o: OneCycleLR(o, 0.1, total_steps=20), "betas of Adam"),
        (optim.AdamW, lambda o: OneCycleLR(o, 0.1, total_steps=20), "betas of AdamW"),
        (lambda p, lr: optim.SGD(p, lr, momentum=0.9), lambda o: OneCycleLR(o, 0.1, total_steps=20), "momentum of SGD"),
        (lambda p, lr: optim.SGD(p, lr, momentum=0.9), lambda o: CyclicLR(o, 0.01, 0.1, 5), "momentum of SGD"),
    ],
)
def test_a_schedule_that_moves_betas_or_momentum_is_told_after_two_moves(kind, schedule, name):
    optimizer = kind([nn.Parameter(torch.ones(2))], lr=0.1)
    first, second, third, _ = looks(optimizer, schedule(optimizer))
    assert first is None and second is None
    assert name in third and "cycle_momentum=False" in third


def test_schedules_of_the_rate_alone_are_none_of_its_business():
    optimizer = optim.Adam([nn.Parameter(torch.ones(2))], lr=0.1)
    assert looks(optimizer, OneCycleLR(optimizer, 0.1, total_steps=20, cycle_momentum=False)) == [None] * 4
    optimizer = optim.SGD([nn.Parameter(torch.ones(2))], lr=0.1)
    assert looks(optimizer, LambdaLR(optimizer, lambda step: 1 / (1 + step))) == [None] * 4


def test_changes_that_do_not_follow_each_other_are_no_schedule():
    optimizer = in_groups(momentum=0.5)
    watch = SettingsWatch(optimizer)
    for step in (1, 5, 9, 13):  # replays between them
        optimizer.param_groups[1]["momentum"] = 0.1 * step
        assert watch.look(step) is None


def test_groups_that_come_are_no_schedule():
    optimizer = in_groups(momentum=0.5)
    watch = SettingsWatch(optimizer)
    for step in (1, 2, 3):
        optimizer.add_param_group({"params": [nn.Parameter(torch.ones(1))]})
        assert watch.look(step) is None
