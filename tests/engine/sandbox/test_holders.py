"""Who keeps Python state, by a label that another process of the script has as well."""

import functools
from types import SimpleNamespace

import torch
from torch import nn

from brim.engine.sandbox.holders import StateDictHolder, find_holders


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Dropout(0.5)
        self.calls = 0
        self.blocks = [SimpleNamespace(depth=1)]

    def forward(self, x):
        self.calls += 1
        return self.inner(x) * self.blocks[0].depth


def values(model, loss_fn, but_for=()):
    found, _ = find_holders(model, loss_fn, but_for)
    return {
        f"{label}.{name}".lstrip("."): value for label, one in found.items() for name, value in one.values().items()
    }


def test_attributes_that_code_names_are_found_at_any_depth():
    found = values(Model(), nn.MSELoss())
    assert (found["model.calls"], found["model.inner.p"], found["model.blocks[0].depth"]) == (0, 0.5, 1)
    assert not {"model.training", "model._modules", "model.inner._forward_hooks"} & set(found)


def test_what_no_code_of_the_users_names_is_not_asked():
    model = Model()
    model.other = 3
    assert "model.other" not in values(model, nn.MSELoss())

    def loss(model, batch):
        return model(batch) * model.other

    assert values(model, loss)["model.other"] == 3


def test_closures_globals_functions_and_arguments_are_found():
    kept = SimpleNamespace(step=1)
    calls = 0

    def loss(model, batch, weight, past=[]):  # noqa: B006 (that is what is tried)
        nonlocal calls
        calls += 1
        return kept.step + calls + weight.now + len(past)

    loss.noted = 7
    found = values(Model(), functools.partial(loss, weight=SimpleNamespace(now=5)))
    assert found["calls"] == 0
    assert found["kept.step"] == 1
    assert found["loss_fn.weight.now"] == 5
    function = next(name for name in found if name.endswith("loss.noted"))
    assert (found[function], found[function.replace("noted", "default 0")]) == (7, [])


def test_names_of_what_a_library_wraps_around_a_function_are_not_asked():
    calls = 0

    @torch.compile(backend="eager")
    def loss(model, batch):
        nonlocal calls
        calls += 1
        return model(batch).sum()

    loss.noted = 7
    _, codes = find_holders(Model(), torch.no_grad()(loss))
    found = values(Model(), torch.no_grad()(loss))
    assert found["calls"] == 0 and 7 in found.values()
    assert not {"_stance", "config", "callback", "ctx_factory"} & set(found)
    assert {code.co_filename for code in codes} == {__file__}


def test_an_object_with_a_state_of_its_own_is_asked_for_that_unless_others_keep_it():
    model = nn.Linear(1, 1)
    optimizer = torch.optim.Adam(model.parameters())

    def loss(model, batch):
        optimizer.zero_grad()
        return model(batch).sum()

    assert isinstance(find_holders(model, loss)[0]["optimizer"], StateDictHolder)
    assert not any(isinstance(one, StateDictHolder) for one in find_holders(model, loss, [optimizer])[0].values())


def test_two_looks_have_the_same_labels():
    model, loss = Model(), nn.MSELoss()
    assert list(find_holders(model, loss)[0]) == list(find_holders(model, loss)[0])


class Counter:
    __slots__ = ("__calls",)

    def __init__(self):
        self.__calls = 3

    def __call__(self, output, target):
        self.__calls += 1
        return (output - target).square().mean()


def test_private_slots_are_kept_as_well():
    assert values(nn.Linear(1, 1), Counter())["loss_fn._Counter__calls"] == 3
