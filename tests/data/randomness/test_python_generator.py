"""Python's generator goes on where it was, whatever was drawn in between, and however it was seeded."""

import random

import hypothesis.strategies as st
import pytest
from hypothesis import given

from brim.data.randomness.python_generator import PythonGeneratorState, state_before_draw


@pytest.fixture(autouse=True)
def own_generator():
    before = random.getstate()
    yield
    random.setstate(before)


def stream(state, count=700):
    twin = random.Random()
    twin.setstate(state)
    return [twin.gauss(0, 1), *(twin.getrandbits(32) for _ in range(count))]


DRAWS = {
    "nothing": lambda: None,
    "a word": lambda: random.getrandbits(32),
    "a number": random.random,
    "a normal number": lambda: random.gauss(0, 1),
    "a table": lambda: [random.getrandbits(32) for _ in range(624)],
    "many": lambda: [random.random() for _ in range(1000)],
    "a new seed": lambda: random.seed(5),
    "a shuffle": lambda: random.shuffle(list(range(50))),
}


@given(st.lists(st.sampled_from(sorted(DRAWS)), max_size=12), st.integers(0, 2**40))
def test_what_is_taken_goes_on_as_the_generator_would_have(draws, seed):
    random.seed(seed)
    state = PythonGeneratorState()
    for name in draws:
        DRAWS[name]()
        expected = stream(random.getstate())
        taken = state.take()
        assert stream(taken) == expected
        random.seed(99)  # somebody else's numbers meanwhile
        random.random()
        random.setstate(taken)


def test_a_draw_is_undone_at_every_place_of_the_table():
    random.seed(3)
    for _ in range(1300):
        random.getrandbits(32)
        before = random.getstate()
        random.random()
        assert stream(state_before_draw(random.getstate()), 5) == stream(before, 5)
        random.setstate(before)


def test_nothing_is_read_where_nobody_has_drawn(monkeypatch):
    state = PythonGeneratorState()
    first = state.take()
    random.setstate(first)
    monkeypatch.setattr(random, "getstate", None)
    assert state.take() is first
