"""Values as data that torch reads without running code, and back to what they were."""

import io
import itertools
import random
from collections import Counter, OrderedDict, defaultdict, deque
from enum import IntEnum

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from brim.engine.state.plain_value import (
    MOST_BYTES,
    MOST_ITEMS,
    MOST_TENSORS,
    CannotKeep,
    digest_of,
    from_plain,
    to_plain,
)

CPU = torch.device("cpu")


class Level(IntEnum):
    LOW = 1
    HIGH = 2


def written_and_read(plain):
    file = io.BytesIO()
    torch.save(plain, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text() | st.integers(), inner, max_size=3)
        | st.lists(inner, max_size=3).map(deque)
    ),
    max_leaves=8,
)


@given(VALUES)
def test_any_value_comes_back_from_a_file(value):
    plain = to_plain(value)
    again = from_plain(written_and_read(plain), CPU)
    assert again == value
    assert type(again) is type(value)
    assert digest_of(to_plain(again)) == digest_of(plain)


@pytest.mark.parametrize(
    "value",
    [{1, 2}, frozenset("ab"), OrderedDict(a=1), Counter("aab"), deque([1, 2], maxlen=2), np.float32(0.5), np.int64(3)],
)
def test_other_containers_and_numbers_come_back(value):
    again = from_plain(written_and_read(to_plain(value)), CPU)
    assert again == value
    assert type(again) is type(value)
    assert getattr(again, "maxlen", None) == getattr(value, "maxlen", None)


@pytest.mark.parametrize("value", [torch.arange(6.0).reshape(2, 3).T, torch.tensor(3), np.arange(4).reshape(2, 2)])
def test_tensors_and_arrays_come_back(value):
    again = from_plain(written_and_read(to_plain(value)), CPU)
    assert again.shape == value.shape
    assert again.dtype == value.dtype
    assert (again == value).all()


def test_a_count_goes_on_where_it_was():
    numbers = itertools.count(3, 2)
    next(numbers)
    assert next(from_plain(to_plain(numbers), CPU)) == 5


@pytest.mark.parametrize("value", [[1], {"a": 2}, {3}, deque([4], maxlen=5), torch.ones(2), np.ones(2)])
def test_an_object_of_the_same_kind_becomes_it(value):
    plain = written_and_read(to_plain(value))
    now = {list: [], dict: {}, set: set(), deque: deque(maxlen=5)}.get(
        type(value), value * 0 if hasattr(value, "shape") else 0
    )
    assert from_plain(plain, CPU, now) is now
    assert (now == value) if not hasattr(value, "shape") else (now == value).all()


def test_generators_and_defaults_live_on_in_the_object_that_is_there():
    generator = random.Random(3)
    plain = written_and_read(to_plain(generator))
    expected = generator.random()
    other = random.Random(4)
    assert from_plain(plain, CPU, other).random() == expected
    with pytest.raises(CannotKeep):
        from_plain(plain, CPU, None)
    counts = defaultdict(int, a=1)
    assert from_plain(to_plain(counts), CPU, now := defaultdict(int)) is now
    assert now["a"] + now["b"] == 1
    with pytest.raises(CannotKeep):
        from_plain(to_plain(counts), CPU, {})


def test_a_member_of_an_enumeration_is_found_by_its_name():
    assert from_plain(written_and_read(to_plain(Level.HIGH)), CPU, Level.LOW) is Level.HIGH
    with pytest.raises(CannotKeep):
        from_plain(to_plain(Level.HIGH), CPU, 1)


def in_itself():
    held = []
    held.append(held)
    return held


@pytest.mark.parametrize(
    "value",
    [object(), [object()], [torch.zeros(1)] * (MOST_TENSORS + 1),
     in_itself(), [0] * (MOST_ITEMS + 1), torch.empty(MOST_BYTES + 1, dtype=torch.uint8),
     np.array([object()]), torch.ones(2).to_sparse(), nn.Linear(1, 1)],
)  # fmt: skip
def test_what_is_no_data_or_too_much_is_refused(value):
    with pytest.raises(CannotKeep):
        to_plain(value)


def test_another_value_has_another_digest():
    values = [0, 0.0, False, "0", None, [0], (0,), torch.zeros(1), torch.zeros(2), torch.zeros(1, dtype=torch.int32)]
    digests = [digest_of(to_plain(value)) for value in values]
    assert len(set(digests)) == len(digests)


def test_the_digest_of_much_is_short_and_sees_all_of_it():
    many, others = torch.zeros(5000), torch.zeros(5000)
    others[2500] = 1  # where neither shows it
    digests = {digest_of(to_plain(value)) for value in (many, others, [many], [others], list(range(5000)))}
    assert len(digests) == 5 and all(len(digest) == 32 for digest in digests)
