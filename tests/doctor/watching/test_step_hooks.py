import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from brim.doctor.watching.feed.batch_costs import BatchCosts
from brim.doctor.watching.feed.loader_hooks import LoaderHooks
from brim.doctor.watching.lines.source_lines import shown, users_place
from brim.doctor.watching.meters import Meters
from brim.doctor.watching.step_hooks import NEW_LEAD, StepHooks


@pytest.fixture
def steps(unhooked):
    made = StepHooks(LoaderHooks(Meters(), BatchCosts()), lambda: made.ended.append(len(made.losses)))
    made.ended = []
    made.install()
    return made


def model_and(optimizer, **options):
    model = torch.nn.Linear(2, 1)
    return model, optimizer(model.parameters(), lr=0.1, **options)


def test_a_step_ends_with_the_optimizers_step_however_many_passes_it_has(steps):
    model, optimizer = model_and(torch.optim.SGD)
    for _ in range(3):
        for _ in range(2):
            model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
    assert steps.ended == [2, 4, 6]
    (seen,) = steps.seen()
    assert (seen.name, seen.tensors, seen.elements, seen.zeroes_gradients) == ("SGD", 2, 3, True)
    assert seen.seconds > 0 and seen.zero_grad_seconds > 0


def test_backward_passes_are_told_where_they_are_called(unhooked):
    places = []
    steps = StepHooks(
        LoaderHooks(Meters(), BatchCosts()), lambda: None, lambda: places.append(shown(users_place()).split(":")[0])
    )
    steps.install()
    torch.nn.Linear(2, 1)(torch.ones(1, 2)).sum().backward()
    assert places == ["test_step_hooks.py"]


def test_weights_in_float64_are_seen(steps):
    for kind in (torch.float32, torch.float64):
        model = torch.nn.Linear(2, 1, dtype=kind)
        model(torch.ones(1, 2, dtype=kind)).sum().backward()
        torch.optim.SGD(model.parameters(), lr=0.1).step()
    assert [seen.in_float64 for seen in steps.seen()] == [False, True]


def test_losses_are_those_that_backward_was_called_on(steps):
    model, optimizer = model_and(torch.optim.SGD)
    losses = []
    for _ in range(3):
        loss = model(torch.ones(1, 2)).sum()
        losses.append(loss.item())
        torch.autograd.backward([loss])
        optimizer.step()
    assert [loss.item() for loss in steps.losses] == losses


def test_of_two_optimizers_the_first_counts_until_it_stops(steps):
    (one, first), (other, second) = model_and(torch.optim.SGD), model_and(torch.optim.Adam)
    for _ in range(2):
        for model, optimizer in ((one, first), (other, second)):
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
    assert len(steps.ended) == 2
    for _ in range(NEW_LEAD + 2):
        second.step()
    assert steps.lead.optimizer is second and len(steps.ended) == 2 + 4


def test_a_closure_is_not_the_optimizers_time(steps):
    model, optimizer = model_and(torch.optim.LBFGS, max_iter=2)

    def closure():
        optimizer.zero_grad()
        loss = model(torch.ones(1, 2)).pow(2).sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    assert len(steps.ended) == 1 and len(steps.losses) >= 2


def test_backward_passes_are_the_steps_of_a_script_without_an_optimizer(steps, monkeypatch):
    monkeypatch.setattr("brim.doctor.watching.step_hooks.WITHOUT_OPTIMIZER", 3)
    model = torch.nn.Linear(2, 1)
    for _ in range(5):
        model(torch.ones(1, 2)).sum().backward()
    assert steps.ended == [4, 5] and steps.seen() == ()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    model(torch.ones(1, 2)).sum().backward()
    assert steps.ended == [4, 5, 6, 6]  # from here on it is the optimizer's


def test_a_step_without_numbers_is_none(steps):
    """Memory is forecast by such steps."""
    with FakeTensorMode():
        model, optimizer = model_and(torch.optim.SGD)
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
    assert steps.ended == [] and steps.losses == [] and steps.backwards == 0 and steps.seen() == ()
