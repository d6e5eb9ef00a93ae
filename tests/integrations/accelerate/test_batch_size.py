import copy

import pytest
import torch
from helpers.small_training import X, Y, net, sgd
from torch import nn

from brim.errors import CannotFit, ConfigError
from brim.integrations.accelerate import find_executable_batch_size


def step(model, optimizer, batch_size, accumulation, runs_out_above=10**9):
    """One optimizer step over the first 12 rows, in ``accumulation`` parts; with dropout, so that draws count."""
    for part in range(accumulation):
        rows = slice(part * batch_size, (part + 1) * batch_size)
        loss = nn.functional.mse_loss(model(X[rows]), Y[rows]) / accumulation
        loss.backward()
        if batch_size > runs_out_above:
            optimizer.step()  # a try that came far before memory ran out
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB")
    optimizer.step()
    optimizer.zero_grad()


def states(model, optimizer):
    return [p.detach().clone() for p in model.parameters()], copy.deepcopy(optimizer.state_dict()["state"])


def assert_same(one, other):
    assert all(torch.equal(a, b) for a, b in zip(one[0], other[0], strict=True))
    for key, state in one[1].items():
        assert torch.equal(state["momentum_buffer"], other[1][key]["momentum_buffer"])


def test_after_tries_that_failed_the_training_is_that_of_the_size_that_ran(capsys):
    tried, model = [], net()
    optimizer = sgd(model.parameters())
    torch.manual_seed(5)

    @find_executable_batch_size(starting_batch_size=12, restores=[model, optimizer])
    def train(batch_size, accumulation, word, *, more):
        tried.append((batch_size, accumulation))
        step(model, optimizer, batch_size, accumulation, runs_out_above=4)
        return word + more

    assert train("a", more="b") == "ab" and tried == [(12, 1), (6, 2), (4, 3)]
    plain = net()
    plain_optimizer = sgd(plain.parameters())
    torch.manual_seed(5)
    step(plain, plain_optimizer, 4, 3)
    assert_same(states(model, optimizer), states(plain, plain_optimizer))
    assert torch.equal(torch.rand(3), _after(plain))
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2 and "going on with 3 accumulated batches of 4, the same 12 samples a step" in said[1]


def _after(plain):
    """What is drawn after the plain training: dropout's draws are over the same shapes."""
    torch.manual_seed(5)
    model = net()
    torch.manual_seed(5)
    step(model, sgd(model.parameters()), 4, 3)
    return torch.rand(3)


def test_another_error_is_raised_and_leaves_everything_as_it_was():
    model = net()
    optimizer = sgd(model.parameters())
    step(model, optimizer, 12, 1)
    next(model.parameters()).grad = torch.ones(8, 4)
    before, drawn = states(model, optimizer), torch.get_rng_state()

    @find_executable_batch_size(starting_batch_size=12, restores=[model, optimizer])
    def train(batch_size, accumulation):
        step(model, optimizer, batch_size, accumulation)
        raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        train()
    assert_same(before, states(model, optimizer))
    assert torch.equal(drawn, torch.get_rng_state()) and torch.equal(next(model.parameters()).grad, torch.ones(8, 4))


def test_a_forecast_spares_the_tries_that_would_fail():
    tried = []
    train = find_executable_batch_size(lambda size, parts: tried.append((size, parts)), 128, largest=50)
    train()
    assert tried == [(32, 4)]


def test_where_not_one_sample_fits_it_is_said(capsys):
    tried = []

    @find_executable_batch_size(starting_batch_size=4)
    def train(batch_size, accumulation):
        tried.append(batch_size)
        raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(CannotFit, match="memory ran out with 1 samples at a time"):
        train()
    assert tried == [4, 2, 1]


@pytest.mark.parametrize(
    ("settings", "part"),
    [
        ({"starting_batch_size": 0}, "starting_batch_size"),
        ({"largest": 1.5}, "largest"),
        ({"restores": [5]}, "which has no state_dict"),
    ],
)
def test_what_cannot_be_asked_for_is_refused_in_a_sentence(settings, part):
    with pytest.raises(ConfigError, match=part):
        find_executable_batch_size(lambda size, parts: None, **settings)


def test_a_function_that_takes_no_accumulation_is_refused_before_it_is_called():
    with pytest.raises(ConfigError, match=r"must take \(batch_size, accumulation\) first"):
        find_executable_batch_size(starting_batch_size=8)(lambda batch_size: batch_size)


def test_an_unknown_argument_is_refused_with_the_nearest_name():
    with pytest.raises(ConfigError, match="did you mean starting_batch_size="):
        find_executable_batch_size(start_batch_size=8)


def test_what_is_handed_over_is_not_handed_over_by_the_caller():
    @find_executable_batch_size(starting_batch_size=8)
    def train(batch_size, accumulation, epochs=1):
        return batch_size

    assert train(3) == 8
    with pytest.raises(ConfigError, match=r"train is called without batch_size and accumulation, .*: train\(...\)"):
        train(8, 2)


def test_what_is_restored_is_a_list():
    with pytest.raises(ConfigError, match=r"restores=\[model, optimizer\]"):
        find_executable_batch_size(starting_batch_size=8, restores=net())
