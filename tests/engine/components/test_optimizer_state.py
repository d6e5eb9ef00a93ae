"""State made beforehand is the state that the first step would have made."""

import pytest
import torch
from helpers.faults import ran_out
from torch import nn
from torch.optim import (
    ASGD,
    LBFGS,
    SGD,
    Adadelta,
    Adafactor,
    Adagrad,
    Adam,
    Adamax,
    AdamW,
    Muon,
    NAdam,
    RAdam,
    RMSprop,
    Rprop,
    SparseAdam,
)  # fmt: skip

from brim.engine.components.optimizer_state import allocate_state, match_layouts

OPTIMIZERS = [
    (Adam, {}), (Adam, {"amsgrad": True}), (Adam, {"fused": True}), (Adam, {"foreach": True}),
    (Adam, {"weight_decay": 0.1}),
    (AdamW, {}), (AdamW, {"amsgrad": True}), (AdamW, {"fused": True}), (AdamW, {"foreach": True, "maximize": True}),
    (AdamW, {"lr": torch.tensor(0.01)}),
    (SGD, {}), (SGD, {"momentum": 0.9}), (SGD, {"momentum": 0.9, "nesterov": True}),
    (SGD, {"momentum": 0.9, "dampening": 0.5}), (SGD, {"momentum": 0.9, "fused": True, "weight_decay": 0.1}),
    (SGD, {"momentum": 0.9, "foreach": True}), (SGD, {"momentum": 0.9, "maximize": True}),
    (RMSprop, {}), (RMSprop, {"momentum": 0.9, "centered": True}),
    (Adagrad, {}), (Adagrad, {"initial_accumulator_value": 0.1}),
    (NAdam, {}), (NAdam, {"decoupled_weight_decay": True, "foreach": True}), (RAdam, {}), (Adamax, {}), (Adadelta, {}),
    (Rprop, {}), (ASGD, {"t0": 2}), (Adafactor, {}),
]  # fmt: skip
IDS = [f"{kind.__name__} {settings}" for kind, settings in OPTIMIZERS]


def net():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1))
    model.unused = nn.Parameter(torch.ones(3))
    return model


def batch(seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(8, 4, generator=generator)


def train(optimizer, model, steps=range(4), beforehand=False):
    for step in steps:
        optimizer.zero_grad()
        model(batch(step)).square().mean().backward()
        if beforehand and step == steps[0]:
            allocate_state(optimizer)
        optimizer.step()
    return [p.detach().clone() for p in model.parameters()]


def same(a, b):
    return len(a) == len(b) and all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def states(optimizer):
    return [value for state in optimizer.state.values() for value in state.values() if isinstance(value, torch.Tensor)]


@pytest.mark.parametrize(("kind", "settings"), OPTIMIZERS, ids=IDS)
def test_training_is_the_same_to_the_bit(kind, settings):
    trained = []
    for beforehand in (False, True):
        model = net()
        optimizer = kind(model.parameters(), **settings)
        weights = train(optimizer, model, beforehand=beforehand)
        trained.append(weights + states(optimizer))
    assert same(*trained)


def test_muon_trains_the_same_too():
    trained = []
    for beforehand in (False, True):
        model = net()
        optimizer = Muon([model[0].weight, model[2].weight])
        trained.append(train(optimizer, model, beforehand=beforehand) + states(optimizer))
    assert same(*trained)


@pytest.mark.parametrize(
    ("kind", "settings"), [(SparseAdam, {}), (SGD, {"lr": 0.1, "momentum": 0.9}), (SGD, {"lr": 0.1}), (Adagrad, {})]
)
def test_sparse_gradients_train_the_same_too(kind, settings):
    trained = []
    for beforehand in (False, True):
        torch.manual_seed(0)
        table = nn.Embedding(10, 3, sparse=True)
        optimizer = kind(table.parameters(), **settings)
        for step in range(4):
            optimizer.zero_grad()
            table(torch.tensor([step, 2, 2, 5])).square().sum().backward()
            if beforehand and step == 0:
                allocate_state(optimizer)
            optimizer.step()
        trained.append([table.weight.detach()])
    assert same(*trained)


def test_an_optimizer_with_a_closure_trains_the_same_too():
    trained = []
    for beforehand in (False, True):
        model = net()
        optimizer = LBFGS(model.parameters(), max_iter=3)

        def closure(optimizer=optimizer, model=model):
            optimizer.zero_grad()
            loss = model(batch(0)).square().mean() + model.unused.sum() * 0
            loss.backward()
            return loss

        closure()
        if beforehand:
            allocate_state(optimizer)
        for _ in range(3):
            optimizer.step(closure)
        trained.append([p.detach() for p in model.parameters()])
    assert same(*trained)


MADE_WITHIN_THE_STEP = [(SGD, {}), (SGD, {"momentum": 0.9, "dampening": 0.5})]


@pytest.mark.parametrize(("kind", "settings"), [o for o in OPTIMIZERS if o not in MADE_WITHIN_THE_STEP], ids=str)
def test_the_first_step_makes_no_more_state(kind, settings):
    model = net()
    optimizer = kind(model.parameters(), **settings)
    model(batch(0)).square().mean().backward()
    allocate_state(optimizer)
    before = [id(tensor) for tensor in states(optimizer)]
    optimizer.step()
    assert [id(tensor) for tensor in states(optimizer)] == before


@pytest.mark.parametrize(("kind", "settings"), OPTIMIZERS, ids=IDS)
def test_parameters_without_a_gradient_get_no_state(kind, settings):
    model = net()
    optimizer = kind(model.parameters(), **settings)
    made_at_birth = model.unused in optimizer.state  # Adagrad's
    model(batch(0)).square().mean().backward()
    allocate_state(optimizer)
    assert (model.unused in optimizer.state) == made_at_birth


@pytest.mark.parametrize(("kind", "settings"), OPTIMIZERS, ids=IDS)
def test_a_resumed_optimizers_state_is_left_alone(kind, settings):
    model = net()
    optimizer = kind(model.parameters(), **settings)
    train(optimizer, model)
    resumed = kind(model.parameters(), **settings)
    resumed.load_state_dict(optimizer.state_dict())
    model(batch(9)).square().mean().backward()
    before = [tensor.clone() for tensor in states(resumed)]
    allocate_state(resumed)
    assert same(before, states(resumed))


def test_every_group_gets_its_state():
    model = net()
    optimizer = AdamW([{"params": model[0].parameters()}, {"params": model[2].parameters(), "lr": 0.1}])
    model(batch(0)).square().mean().backward()
    allocate_state(optimizer)
    assert len(optimizer.state) == 4


def test_somebody_elses_optimizer_is_left_alone():
    class Own(SGD):
        pass

    model = net()
    optimizer = Own(model.parameters(), lr=0.1, momentum=0.9)
    model(batch(0)).square().mean().backward()
    allocate_state(optimizer)
    assert not optimizer.state


@pytest.mark.parametrize("kind", [AdamW, Adam, RMSprop, NAdam, Adadelta])
def test_state_half_made_when_memory_ran_out_is_made_whole_by_the_next_try(kind, monkeypatch):
    model, plain = net(), net()
    optimizer = kind(model.parameters())
    model(batch(0)).square().mean().backward()
    zeros_like, calls = torch.zeros_like, []

    def at_the_second_tensor(*args, **settings):
        calls.append(1)
        if len(calls) == 2:
            raise ran_out()
        return zeros_like(*args, **settings)

    settings = {"momentum": 0.9} if kind is RMSprop else {}
    optimizer = kind(model.parameters(), **settings)
    with monkeypatch.context() as patch:
        patch.setattr(torch, "zeros_like", at_the_second_tensor)
        with pytest.raises(torch.OutOfMemoryError):
            allocate_state(optimizer)
    allocate_state(optimizer)
    optimizer.step()
    assert same([p.detach() for p in model.parameters()], train(kind(plain.parameters(), **settings), plain, range(1)))


def test_state_lies_as_its_weights_do_also_when_it_was_loaded():
    weight = nn.Parameter(torch.randn(4, 3, 2, 2).contiguous(memory_format=torch.channels_last))
    bias = nn.Parameter(torch.randn(4))
    optimizer = AdamW([weight, bias], fused=True)
    for parameter in (weight, bias):
        state = {"step": torch.tensor(1.0), "exp_avg": torch.randn(parameter.shape)}
        optimizer.state[parameter] = {**state, "exp_avg_sq": torch.rand(parameter.shape)}
    before = {name: value.clone() for name, value in optimizer.state[weight].items()}
    match_layouts(optimizer)
    assert optimizer.state[weight]["exp_avg"].stride() == weight.stride()
    assert all(torch.equal(value, before[name]) for name, value in optimizer.state[weight].items())
