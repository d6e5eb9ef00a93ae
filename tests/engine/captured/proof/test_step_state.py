"""A copy of what a step moves holds all of it, and puts it back where it was."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from brim.engine.captured.proof import step_state as state_room
from brim.engine.captured.proof.step_state import StepState
from brim.engine.components.precision import Precision

CPU = torch.device("cpu")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))
        self.layers = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 1))
        self.tied = nn.Linear(3, 4)
        self.tied.weight = self.layers[0].weight
        self.frozen = nn.Linear(3, 3).requires_grad_(False)

    def forward(self, x):
        return self.layers(self.frozen(x)) * self.scale + self.tied(x).sum(1, keepdim=True)


@pytest.fixture(autouse=True)
def card(monkeypatch):
    """Memory for copies, as on a card with room."""
    monkeypatch.setattr(state_room, "usable_memory", lambda device: 1 << 30)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 0)


def steps(model, optimizer, count=1, loss_fn=None):
    for _ in range(count):
        optimizer.zero_grad()
        out = model(torch.randn(8, 3)).square()
        (out.mean() if loss_fn is None else loss_fn(out)).backward()
        optimizer.step()


def all_numbers(model, optimizer, *more):
    tensors = [*model.state_dict().values(), *more]
    tensors += [value for state in optimizer.state.values() for value in state.values()]
    return [tensor.detach().clone() for tensor in tensors]


def make(loss_fn=None):
    torch.manual_seed(0)
    model = Net()
    parameters = [*model.parameters(), *(() if loss_fn is None else loss_fn.parameters())]
    optimizer = torch.optim.Adam(parameters, lr=0.1)
    steps(model, optimizer, loss_fn=loss_fn)
    return model, optimizer


def test_steps_are_taken_back_and_come_out_the_same_again():
    model, optimizer = make()
    before = all_numbers(model, optimizer)
    start = StepState(model, optimizer, Precision("32", CPU)).copy()
    steps(model, optimizer, 3)
    once = all_numbers(model, optimizer)
    start.restore()
    assert all(map(torch.equal, all_numbers(model, optimizer), before))
    steps(model, optimizer, 3)  # the same batches and dropout: generators were put back too
    assert all(map(torch.equal, all_numbers(model, optimizer), once))
    assert not all(map(torch.equal, once, before))


def test_everything_stays_in_its_memory():
    model, optimizer = make()
    state = StepState(model, optimizer, Precision("32", CPU))
    places = [tensor.data_ptr() for tensor in [*model.parameters(), *model.buffers()]]
    start = state.copy()
    steps(model, optimizer)
    start.restore()
    assert [tensor.data_ptr() for tensor in [*model.parameters(), *model.buffers()]] == places


def test_a_copy_does_not_move_with_what_it_is_of():
    model, optimizer = make()
    state = StepState(model, optimizer, Precision("32", CPU))
    one, two = state.copy(), state.copy()
    steps(model, optimizer)
    assert all(map(torch.equal, one.copies.values(), two.copies.values()))
    assert not all(map(torch.equal, one.copies.values(), state.copy().copies.values()))


def test_weights_that_are_shared_are_copied_once_and_frozen_ones_not_at_all():
    model, optimizer = make()
    named = StepState(model, optimizer, Precision("32", CPU)).named
    assert "layers.0.weight" in named and "tied.weight" not in named
    assert not any(name.startswith("frozen") for name in named)
    assert "layers.1.num_batches_tracked" in named


@pytest.mark.parametrize(("room", "keeps"), [(5, True), (3, False)])
def test_copies_stay_on_the_card_where_there_is_room(room, keeps, monkeypatch):
    monkeypatch.setattr(state_room, "usable_memory", lambda device: room * 1000 + 100)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 100)
    assert state_room.has_room(torch.device("cuda"), 1000) is keeps


def test_copies_of_what_is_on_the_host_are_on_the_host():
    model, optimizer = make()
    assert StepState(model, optimizer, Precision("32", CPU)).keeps_on_device


def scaled():
    """A precision with a loss scale, which has tensors of its own on the device."""
    scaler = SimpleNamespace(_scale=torch.tensor(8.0), _growth_tracker=torch.tensor(1, dtype=torch.int32))
    return SimpleNamespace(device=CPU, scaler=scaler)


def test_the_loss_scale_is_taken_back():
    model, optimizer = make()
    precision = scaled()
    start = StepState(model, optimizer, precision).copy()
    precision.scaler._scale.fill_(4.0)
    precision.scaler._growth_tracker.fill_(7)
    start.restore()
    assert float(precision.scaler._scale) == 8.0 and int(precision.scaler._growth_tracker) == 1


def test_a_loss_scale_that_is_not_there_yet_is_left_out():
    model, optimizer = make()
    precision = SimpleNamespace(device=CPU, scaler=SimpleNamespace(_scale=None, _growth_tracker=None))
    state = StepState(model, optimizer, precision)
    assert "the loss scale" not in state.named and "its growth" not in state.named
    before = [tensor.clone() for tensor in state.tensors]
    state.copy().restore()
    assert all(torch.equal(one, other) for one, other in zip(before, state.tensors, strict=True))


def test_a_parameter_with_the_name_of_the_loss_scale_is_taken_back():
    model, optimizer = make()
    start = StepState(model, optimizer, scaled()).copy()
    before = model.scale.detach().clone()
    steps(model, optimizer)
    start.restore()
    assert torch.equal(model.scale, before)


class LearnedLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))

    def forward(self, out):
        return (out * self.weight + self.weight.square()).mean()


def test_a_parameter_of_the_optimizer_that_is_not_the_models_is_taken_back():
    loss_fn = LearnedLoss()
    model, optimizer = make(loss_fn)
    before = loss_fn.weight.detach().clone()
    start = StepState(model, optimizer, Precision("32", CPU)).copy()
    steps(model, optimizer, 3, loss_fn)
    start.restore()
    assert torch.equal(loss_fn.weight, before)
