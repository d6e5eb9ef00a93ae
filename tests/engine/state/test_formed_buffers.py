"""Buffers that come to be in a run: resumed, gone back to, loaded; against a run that was not stopped."""

import pytest
import torch
from helpers.callbacks import StopAt
from helpers.small_training import X, Y, net, sgd
from torch import nn

import brim
from brim.engine.checkpoints.weights import load_weights, save_weights
from brim.errors import RunFolderError

pytestmark = pytest.mark.usefixtures("own_folder")


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = net()


class Filled(Inner):
    """None until the first batch, as the state of a recurrent model."""

    def __init__(self):
        super().__init__()
        self.register_buffer("state", None)

    def forward(self, x):
        y = self.inner(x if self.state is None else x + self.state)
        if self.training:
            self.state = x.mean(0) / 10
        return y


class Registered(Inner):
    """A scale that the first batch says."""

    def forward(self, x):
        if not hasattr(self, "scale"):
            self.register_buffer("scale", x.std(0) + 1)
        return self.inner(x / self.scale)


class Grows(Inner):
    """A bank of what was seen, empty at the start."""

    def __init__(self):
        super().__init__()
        self.register_buffer("bank", torch.zeros(0, 4))

    def forward(self, x):
        y = self.inner(x - self.bank.mean(0) if len(self.bank) else x)
        if self.training:
            self.bank = torch.cat([self.bank, x])
        return y


def trained(make, stop_at=None, resume=None, **settings):
    torch.manual_seed(0)
    model = make()
    trainer = brim.Trainer(
        model, brim.Loader((X, Y), 8), loss_fn=nn.MSELoss(), device="cpu", threads=1,
        run_dir="run" if stop_at or resume else "whole", callbacks=[StopAt(stop_at)],
        **{"optimizer": sgd, "epochs": 3, **settings},
    )  # fmt: skip
    trainer.fit(resume=resume)
    return model


def climb(parameters):
    """Every evaluation is worse than the one before."""
    return torch.optim.SGD(parameters, lr=0.01, maximize=True)


def state(model):
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def assert_same(one, other):
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("make", [Filled, Registered, Grows])
def test_a_resumed_run_has_the_buffers_and_the_bits_of_one_that_was_not_stopped(make):
    whole = state(trained(make))
    trained(make, stop_at=7)
    assert_same(state(trained(make, resume="run")), whole)


@pytest.mark.parametrize("make", [Filled, Registered, Grows])
def test_the_best_weights_come_with_the_buffers_of_their_step(make):
    found = trained(make, eval_data=[(X, Y)], optimizer=climb)
    at_first = trained(make, stop_at=5, epochs=1, optimizer=climb)
    assert_same(state(found), state(at_first))


class LateInRun(Inner):
    """A buffer that is registered after the best weights were kept."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += self.training
        if self.calls == 8:
            self.register_buffer("late", torch.ones(1))
        return self.inner(x)


def test_a_buffer_that_the_best_weights_do_not_have_stays():
    found = trained(LateInRun, eval_data=[(X, Y)], optimizer=climb)
    assert found.late.item() == 1


@pytest.mark.parametrize("make", [Filled, Grows])
def test_a_loaded_model_takes_what_is_none_or_empty_in_it(make):
    whole = trained(make)
    assert_same(state(brim.load("whole", model=make())), state(whole))


def test_weights_of_another_architecture_are_refused_and_leave_the_model(tmp_path):
    model, other = Filled(), Filled()
    other.state, other.more = torch.ones(4), nn.Linear(1, 1)
    save_weights(other, tmp_path / "other.safetensors")
    with pytest.raises(RunFolderError, match=r"it also has more\.bias"):
        load_weights(model, tmp_path / "other.safetensors")
    assert model.state is None


class Table(nn.Module):
    """A buffer whose length is a setting."""

    def __init__(self, length):
        super().__init__()
        self.inner = net()
        self.register_buffer("table", torch.arange(length))

    def forward(self, x):
        return self.inner(x)


def test_a_buffer_that_the_script_builds_in_another_shape_is_refused():
    trained(lambda: Table(3), stop_at=7)
    with pytest.raises(RunFolderError, match=r"table is \(3,\) there and \(4,\) here"):
        trained(lambda: Table(4), resume="run")
