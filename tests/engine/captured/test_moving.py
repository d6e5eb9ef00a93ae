"""Tensors that move though nobody would expect it are found by their content; those that stay are not."""

import pytest
import torch
from torch import nn

from brim.engine.captured.moving import ContentWatch

CENTRE = torch.zeros(4)


class Momentum(nn.Module):
    """An encoder, and one that follows it without being trained."""

    def __init__(self):
        super().__init__()
        self.encoder, self.follower = nn.Linear(4, 4), nn.Linear(4, 4).requires_grad_(False)
        self.kept = torch.ones(3)
        self.register_buffer("statistics", torch.zeros(4))


def by_data(model):
    model.follower.weight.data.mul_(0.9)


def by_copy(model):
    with torch.no_grad():
        model.follower.bias.copy_(model.encoder.bias)


def loose(model):
    model.kept += 1


@pytest.mark.parametrize(
    ("move", "name"),
    [(by_data, "follower.weight"), (by_copy, "follower.bias"), (loose, "Momentum.kept")],
    ids=["by .data", "by copy_", "loose"],
)
def test_what_moved_is_found_by_name(move, name):
    model = Momentum()
    watch = ContentWatch(model, None)
    move(model)
    (found,) = watch.moved()
    assert found.startswith(name)


def test_what_has_a_place_in_every_copy_of_the_state_is_left_out():
    model = Momentum()
    watch = ContentWatch(model, None)
    with torch.no_grad():
        model.encoder.weight.add_(1)
        model.statistics.add_(1)
    assert watch.moved() == {}


def test_tensors_that_a_loss_names_are_looked_at():
    def loss_fn(model, batch):
        return (model(batch) - CENTRE).sum()

    watch = ContentWatch(nn.Linear(4, 4), loss_fn)
    CENTRE.add_(1)
    assert list(watch.moved()) == ["CENTRE"]


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.bfloat16, torch.complex64, torch.float64])
def test_numbers_of_any_type_are_looked_at(dtype):
    model = Momentum()
    model.kept = torch.zeros(5, dtype=dtype)
    watch = ContentWatch(model, None)
    assert watch.moved() == {}
    model.kept[2] = 1
    assert len(watch.moved()) == 1


def test_content_that_is_not_a_number_and_stays_so_has_not_moved():
    model = Momentum()
    model.kept = torch.tensor([1.0, float("nan")])
    assert ContentWatch(model, None).moved() == {}


def test_there_may_be_nothing_to_watch():
    assert ContentWatch(nn.Linear(2, 2), None).moved() == {}
