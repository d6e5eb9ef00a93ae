"""State that follows the weights alone is moved once for a batch, however many parts the batch has."""

import pytest
import torch
from torch import nn

from brim.engine.splitting.steady_state import SteadyState


def in_place(module):
    module.state.add_(1)


def replaced(module):
    module.state = module.state + 1


def by_data(module):
    module.frozen.data.add_(1)


def by_new_data(module):
    module.frozen.data = module.frozen.data + 1


def made():
    module = nn.Linear(2, 2)
    module.register_buffer("state", torch.zeros(3))
    module.frozen = nn.Parameter(torch.zeros(2), requires_grad=False)
    return module


@pytest.mark.parametrize("move", [in_place, replaced, by_data, by_new_data])
def test_each_part_begins_where_the_batch_began_and_the_last_one_moves_it(move):
    module = made()
    steady = SteadyState([module])
    for batch in range(3):
        for part in range(4):
            steady.restore() if part else steady.take()
            assert float(module.state.sum() + module.frozen.sum()) == batch * (2 if "data" in move.__name__ else 3)
            move(module)


def test_trained_weights_are_left_alone():
    module = made()
    steady = SteadyState([module])
    steady.take()
    with torch.no_grad():
        module.weight.fill_(7)
    steady.restore()
    assert module.weight.eq(7).all()


def test_a_buffer_that_is_none_is_no_state():
    module = nn.Module()
    module.register_buffer("nothing", None)
    steady = SteadyState([module])
    steady.take()
    steady.restore()
    assert module.nothing is None


def test_a_buffer_that_the_first_part_fills_is_filled_anew_by_the_others():
    module = nn.Module()
    module.register_buffer("state", None)
    steady = SteadyState([module])
    for batch in range(3):
        for part in range(4):
            steady.restore() if part else steady.take()
            module.state = torch.ones(2) if module.state is None else module.state + 1
            assert module.state.eq(batch + 1).all()
