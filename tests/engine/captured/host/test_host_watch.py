"""Whatever may change what a model computes is noticed between steps, and nothing else is."""

import pytest
import torch
from torch import nn

from brim.engine.captured.host.host_watch import HostWatch


class Shared(nn.Module):
    scale = 1.0


class Model(Shared):
    level = 3

    def __init__(self):
        super().__init__()
        self.inner, self.drop = nn.Linear(4, 4), nn.Dropout(0.1)
        self.register_buffer("mask", torch.ones(4))
        self.use_cache, self.history, self.options, self.name = True, [1, 2], {"a": 1}, "x"


def replace_buffer(model):
    model.mask = torch.zeros(4)


CHANGES = {
    "a flag": lambda model: setattr(model, "use_cache", False),
    "a number of a part": lambda model: setattr(model.drop, "p", 0.5),
    "evaluation": lambda model: model.drop.eval(),
    "a new attribute": lambda model: setattr(model, "extra", object()),
    "one less": lambda model: delattr(model, "name"),
    "a list": lambda model: model.history.append(3),
    "an item of a list": lambda model: model.history.__setitem__(0, 9),
    "an option": lambda model: model.options.__setitem__("a", 2),
    "another buffer": replace_buffer,
    "weights elsewhere": lambda model: setattr(model.inner.weight, "data", model.inner.weight.data.clone()),
    "another part": lambda model: setattr(model, "inner", nn.Linear(4, 4)),
    "a hook": lambda model: model.inner.register_forward_hook(lambda *_: None),
    "an attribute of the class": lambda model: setattr(type(model), "level", type(model).level + 1),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_is_noticed(change):
    model = Model()
    watch = HostWatch(model, None)
    assert watch.what_changed() is None
    change(model)
    assert watch.what_changed() is not None


def test_what_steps_do_is_no_change():
    model = Model()
    watch = HostWatch(model, nn.MSELoss())
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(3):
        optimizer.zero_grad()
        model.inner(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        model.mask.mul_(0.5)
    assert watch.what_changed() is None


def test_the_name_of_what_changed_is_told():
    model = Model()
    watch = HostWatch(model, None)
    model.drop.p = 0.7
    assert watch.what_changed() == "drop.p"


def test_losses_are_looked_at():
    loss = nn.SmoothL1Loss()
    watch = HostWatch(Model(), loss)
    loss.beta = 0.5
    assert watch.what_changed() == "loss_fn.beta"

    weight = [1.0]
    watch = HostWatch(Model(), lambda model, batch: model(batch).sum() * weight[0])
    assert watch.what_changed() is None
    weight[0] = 2.0
    assert watch.what_changed() is not None


def test_a_place_is_not_used_again_while_it_is_watched():
    model = Model()
    watch = HostWatch(model, None)
    for _ in range(20):
        model.mask = torch.ones(4)
        assert watch.what_changed() is not None
