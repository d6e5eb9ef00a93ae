import pytest
import torch
from torch import nn

from brim.engine.numbers.observed_pass import observe
from brim.engine.numbers.pass_notes import PassNotes
from brim.errors import ConfigError

X = torch.ones(3, 2)


@pytest.fixture
def model():
    return nn.Linear(2, 1)


def test_the_outputs_are_those_of_the_one_call(model):
    seen = observe(model, lambda: model(X).sum(), PassNotes(), needs_outputs=True)
    assert torch.equal(seen.outputs, model(X)) and torch.equal(seen.result, model(X).sum())


def test_what_the_loss_says_are_the_outputs_goes_before_what_was_called(model):
    notes = PassNotes()

    def loss():
        notes.take_extras({"loss": 0.0, "outputs": "mine", "kl": 0.5})
        return model(X) + model(X)

    seen = observe(model, loss, notes, needs_outputs=True)
    assert (seen.outputs, seen.numbers) == ("mine", [("kl", 0.5)])


@pytest.mark.parametrize(("calls", "how"), [(0, "does not call the model"), (2, "calls the model 2 times")])
def test_where_it_is_not_clear_what_they_are_it_is_told_how_to_say_so(model, calls, how):
    with pytest.raises(ConfigError, match=rf"the loss {how}: let it return {{'loss': loss, 'outputs': outputs}}"):
        observe(model, lambda: [model(X) for _ in range(calls)], PassNotes(), needs_outputs=True)


@pytest.mark.parametrize("fails", [False, True])
def test_the_model_is_as_before(model, fails):
    calls = []

    def loss():
        calls.append(model(X))
        if fails:
            raise ValueError("mine")

    try:
        observe(model, loss, PassNotes(), needs_outputs=True)
    except ValueError:
        assert fails
    assert len(calls) == 1 and not model._forward_hooks


def test_where_nobody_asks_for_them_the_model_may_be_called_as_often_as_the_loss_likes(model):
    assert observe(model, lambda: (model(X), model(X)), PassNotes(), needs_outputs=False).outputs is None
