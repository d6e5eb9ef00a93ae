"""What the data draws is a function of its key, and what the model draws is as if the data had drawn nothing."""

import random

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from brim.data.randomness.seeding import DataGenerators, NumpyBits, Seeding, seeded

DRAWS = {
    "python": lambda: random.random(),
    "python's normal": lambda: random.gauss(0, 1),
    "python's bits": lambda: random.getrandbits(8),
    "many of python's": lambda: [random.random() for _ in range(312)][-1],  # a whole table of words
    "numpy": lambda: float(np.random.rand()),
    "numpy's normal": lambda: float(np.random.randn()),
    "many of numpy's": lambda: float(np.random.rand(312)[-1]),
    "torch": lambda: float(torch.rand(())),
    "seed python": lambda: random.seed(5),
    "seed numpy": lambda: np.random.seed(5),
}


def seed_all():
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)


def draw_all():
    return [random.random(), random.gauss(0, 1), float(np.random.randn()), float(torch.rand(()))]


@given(st.lists(st.sampled_from([*DRAWS, "data"]), max_size=40))
def test_the_model_draws_as_if_the_data_had_drawn_nothing(names):
    seed_all()
    plain = [DRAWS[name]() for name in names if name != "data"] + draw_all()
    seed_all()
    beside: list[object] = []
    seeding = Seeding()
    for number, name in enumerate(names):
        if name == "data":
            with seeding.draw_from(number):
                draw_all()
        else:
            beside.append(DRAWS[name]())
    assert beside + draw_all() == plain


@given(st.lists(st.sampled_from([*DRAWS, "data"]), max_size=40))
def test_beside_generators_of_the_data_the_model_draws_as_if_the_data_had_drawn_nothing(names):
    seed_all()
    plain = [DRAWS[name]() for name in names if name != "data"] + draw_all()
    seed_all()
    beside: list[object] = []
    generators = DataGenerators(3)
    for name in names:
        if name == "data":
            with generators:
                draw_all()
        else:
            beside.append(DRAWS[name]())
    assert beside + draw_all() == plain


@given(st.lists(st.sampled_from(list(DRAWS)), max_size=40))
def test_generators_of_the_data_go_on_from_where_they_were_whatever_the_model_draws(names):
    alone, beside = DataGenerators(3), DataGenerators(3)
    for name in names:
        with alone:
            expected = DRAWS[name]()
        with beside:
            assert DRAWS[name]() == expected
        draw_all()


def test_generators_of_the_data_do_not_begin_anew_each_time():
    generators = DataGenerators(3)
    with generators:
        first = draw_all()
    with generators:
        second = draw_all()
    assert not set(first) & set(second)


def test_the_data_draws_by_its_key_whatever_was_drawn_before():
    found = []
    for draws in (0, 1, 5):
        for _ in range(draws):
            draw_all()
        with seeded(7):
            found.append(draw_all())
    assert found[0] == found[1] == found[2]
    with seeded(8):
        assert draw_all() != found[0]


def test_within_one_another():
    seed_all()
    expected = draw_all()
    seed_all()
    with seeded(1):
        first = draw_all()
        with seeded(2):
            draw_all()
        second = draw_all()
    assert draw_all() == expected
    with seeded(1):
        assert [draw_all(), draw_all()] == [first, second]


def test_numpys_state_is_read_once_while_nobody_draws(monkeypatch):
    seed_all()
    seeding, reads = Seeding(), []
    get_state = np.random.get_state
    monkeypatch.setattr(np.random, "get_state", lambda **kwargs: reads.append(1) or get_state(**kwargs))
    for number in range(5):
        with seeding.draw_from(number):
            draw_all()
    assert len(reads) == 1
    np.random.rand()
    with seeding.draw_from(1):
        pass
    assert len(reads) == 2


def test_where_the_table_cannot_be_read_the_state_is_read_each_time(monkeypatch):
    monkeypatch.setattr("brim.data.randomness.seeding._lies_as_expected", lambda: False)
    assert NumpyBits(np.random.get_bit_generator()).marks() is None
    test_the_model_draws_as_if_the_data_had_drawn_nothing()
    test_within_one_another()


def test_a_seeding_may_be_entered_again_within_itself():
    seed_all()
    expected = draw_all()
    seed_all()
    seeding = Seeding()
    with seeding.draw_from(1):
        draw_all()
        with seeding.draw_from(2):
            draw_all()
        with seeding.draw_from(2):
            draw_all()
    assert draw_all() == expected


def test_in_a_worker_nothing_is_put_back():
    with seeded(7):
        expected = draw_all()
    with seeded(7, restore=False):
        pass
    assert draw_all() == expected
