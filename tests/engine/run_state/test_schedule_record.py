from functools import partial

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, OneCycleLR, ReduceLROnPlateau, SequentialLR, StepLR

from brim.engine.components.schedule import make_scheduler
from brim.engine.run_state.schedule_record import ScheduleRecord


def optimizer(lr=0.1):
    return torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=lr, momentum=0.9)


def record(wanted, total=20, lr=0.1, steps=0):
    owner = optimizer(lr)
    made = make_scheduler(wanted, owner, total)
    for _ in range(steps):
        owner.step()
        made.step(*([1.0] if isinstance(made, ReduceLROnPlateau) else []))
    return ScheduleRecord.of(wanted, made, total)


OWN = {
    "step": lambda o: StepLR(o, 3),
    "cosine": lambda o: CosineAnnealingLR(o, 10),
    "one cycle": lambda o: OneCycleLR(o, 0.1, total_steps=20),
    "lambda": lambda o: LambdaLR(o, lambda step: 0.9**step),
    "plateau": lambda o: ReduceLROnPlateau(o, patience=2),
    "one after the other": lambda o: SequentialLR(o, [StepLR(o, 3), CosineAnnealingLR(o, 10)], [5]),
}


@pytest.mark.parametrize("wanted", [None, "constant", "cosine", {"name": "linear", "warmup": 0.1}, *OWN.values()])
def test_the_same_schedule_is_the_same_also_after_some_steps(wanted):
    then, now = record(wanted), record(wanted, steps=0 if wanted in (None, "constant") else 4)
    assert ScheduleRecord.from_saved(then.to_saved()) == then
    assert then.refusal(now) is None and then.remark(now) is None


def test_none_is_a_constant_rate():
    assert record(None) == record("constant")


@pytest.mark.parametrize(
    ("then", "now"),
    [("cosine", "linear"), (None, "cosine"), ("cosine", OWN["cosine"]), (OWN["step"], OWN["cosine"]),
     ({"name": "cosine", "floor": 0.1}, "cosine")],
)  # fmt: skip
def test_another_kind_is_refused(then, now):
    assert "it was made with the schedule" in record(then).refusal(record(now))


def test_another_end_of_the_run_is_remarked_on_where_it_matters():
    assert "was to end at step 20 and ends at step 40 now" in record("cosine").remark(record("cosine", 40))
    assert record(None).remark(record(None, 40)) is None


def test_other_settings_of_the_users_own_are_remarked_on():
    assert "T_max 10" in record(OWN["cosine"]).remark(record(lambda o: CosineAnnealingLR(o, 12)))
    assert "base_lrs [0.1]" in record(OWN["step"]).remark(record(OWN["step"], lr=0.2))


@pytest.mark.parametrize("saved", [None, 3, {"kind": "x", "other": 1}])
def test_a_checkpoint_of_an_earlier_version_has_none(saved):
    assert ScheduleRecord.from_saved(saved) is None


def warm_up(step, length):
    return min(1.0, step / length)


class WarmUp:
    def __init__(self, length):
        self.length = length

    def __call__(self, step):
        return warm_up(step, self.length)


def table(rates):
    return lambda step: rates[step]


FUNCTIONS = {
    "a lambda": lambda length: lambda step: warm_up(step, length),
    "partial, as transformers has them": lambda length: partial(warm_up, length=length),
    "a table that ends": lambda length: table([warm_up(step, length) for step in range(150)]),
}


@pytest.mark.parametrize("make", FUNCTIONS.values(), ids=FUNCTIONS)
def test_another_function_is_remarked_on_though_no_state_holds_it(make):
    then, alike, other = (record(lambda o, n=n: LambdaLR(o, make(n))) for n in (100, 100, 120))
    assert then.remark(alike) is None
    assert then.remark(other) == (
        "the function of LambdaLR is not the one that the run began with (it gave 0.01 at step 1, and gives 0.00833333 "
        "now): the run goes on with the new one"
    )


def test_a_function_within_another_schedule_is_remarked_on_and_what_an_object_keeps_is_the_checkpoints():
    then, other = (
        record(lambda o, n=n: SequentialLR(o, [LambdaLR(o, lambda step: warm_up(step, n)), StepLR(o, 3)], [5]))
        for n in (4, 5)
    )
    assert "not the one that the run began with" in then.remark(other)
    then, other = (record(lambda o, n=n: LambdaLR(o, WarmUp(n))) for n in (4, 5))
    assert "going on with the schedule of the checkpoint (lr_lambdas [{'length': 4}])" in then.remark(other)


def test_asking_a_function_leaves_no_trace():
    asked = []
    record(lambda o: LambdaLR(o, lambda step: asked.append(step) or 1.0), total=20)
    assert asked == [0]
