"""Random generators: where they stand, whether somebody drew, and how they are put back."""

import random

import numpy as np
import pytest
import torch

from brim.data.randomness.generators import (
    PythonGenerators,
    generator_states,
    host_marks,
    mark_of,
    process_generators,
    restore_generators,
    seed_rank,
    set_state,
    state_of,
)

CPU = torch.device("cpu")
OWN = {
    "torch": (torch.Generator().manual_seed(1), lambda g: float(torch.rand((), generator=g))),
    "python": (random.Random(1), lambda g: g.gauss(0, 1)),
    "numpy": (np.random.default_rng(1), lambda g: float(g.normal())),
    "numpy of old": (np.random.RandomState(1), lambda g: float(g.randn())),
    "bits": (np.random.PCG64(1), lambda g: int(g.random_raw())),
}
DRAWS = [lambda: random.gauss(0, 1), lambda: float(np.random.randn()), lambda: float(torch.rand(()))]


@pytest.mark.parametrize("name", OWN)
def test_a_generator_of_the_users_own_is_put_back(name):
    generator, draw = OWN[name]
    draw(generator)
    state, mark = state_of(generator), mark_of(generator)
    assert mark_of(generator) == mark
    drawn = [draw(generator) for _ in range(3)]
    assert mark_of(generator) != mark
    set_state(generator, state)
    assert mark_of(generator) == mark
    assert [draw(generator) for _ in range(3)] == drawn


@pytest.mark.parametrize("draw", DRAWS)
def test_a_draw_leaves_a_mark_and_is_undone(draw):
    before, states, others = host_marks(), generator_states(CPU), PythonGenerators.now()
    assert host_marks() == before
    with process_generators():
        drawn = draw()
        assert host_marks() != before
    assert host_marks() == before
    assert draw() == drawn
    restore_generators(states, CPU)
    assert host_marks() == before
    draw()
    others.restore()
    assert PythonGenerators.now().marks() == others.marks()


def test_ranks_draw_apart():
    with process_generators():
        marks = []
        for rank in range(3):
            seed_rank(5, rank)
            marks.append(host_marks())
    assert len(set(marks)) == 3


def test_an_error_that_stopped_the_device_is_the_one_that_is_told(monkeypatch):
    """A GPU that an index out of range has stopped takes no state any more."""

    def refuse(states):
        raise RuntimeError("CUDA error: device-side assert triggered")

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_rng_state_all", lambda: [torch.zeros(1)])
    monkeypatch.setattr(torch.cuda, "set_rng_state_all", refuse)
    before = torch.get_rng_state()
    with pytest.raises(ValueError, match="the reason"), process_generators():
        torch.rand(1)
        raise ValueError("the reason")
    assert torch.equal(torch.get_rng_state(), before)
