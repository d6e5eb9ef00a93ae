import functools

import torch
from torch import nn

from brim.engine.components.loss_modules import DEPTH, modules_of

MODEL = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
CRITERION = nn.MSELoss()


def by_name_of_a_global(model, batch):
    return CRITERION(model(batch[0]), batch[1])


class Weighing:
    def __init__(self):
        self.parts = {"a": nn.L1Loss(), "b": [nn.MSELoss()]}

    def __call__(self, model, batch):
        return self.parts["a"](model(batch[0]), batch[1])


def found(loss_fn):
    return modules_of(loss_fn, MODEL)


def test_a_loss_that_is_a_module_is_found_with_its_parts_as_one():
    loss_fn = nn.Sequential(nn.Linear(1, 1))
    assert found(loss_fn) == {"loss_fn": loss_fn}


def test_globals_closures_arguments_and_attributes_are_looked_at():
    inside, default = nn.L1Loss(), nn.BCELoss()

    def closing(model, batch, weigh=default):
        return inside(model(batch[0]), batch[1]) + weigh(batch[1], batch[1])

    assert found(by_name_of_a_global) == {"loss_fn.CRITERION": CRITERION}
    assert set(found(closing).values()) == {inside, default}
    assert set(found(functools.partial(by_name_of_a_global, criterion=inside)).values()) == {inside, CRITERION}
    made = Weighing()
    assert set(found(made).values()) == {made.parts["a"], made.parts["b"][0]}
    assert set(found(made.__call__).values()) == {made.parts["a"], made.parts["b"][0]}


def test_parts_of_the_model_and_what_libraries_hold_are_not_among_them():
    assert found(lambda model, batch: MODEL[0](batch)) == {}
    assert found(torch.nn.functional.mse_loss) == {} and found(print) == {} and found(None) == {}


def test_it_looks_only_so_deep_and_ends_where_objects_hold_each_other():
    nested = nn.L1Loss()
    for _ in range(DEPTH + 2):
        nested = [nested]
    assert found(nested) == {}
    circle = {}
    circle["self"] = circle
    assert found(circle) == {}
