import random
from collections import UserDict

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import default_collate

from brim.data.randomness.seeding import seeded
from brim.data.reading import one_batch
from brim.data.reading.one_batch import BatchReader, Delivery, Draw, Failure, odd_one, types_differ
from brim.errors import DataError


class Corrupt(Exception):
    def __init__(self, file, offset):
        super().__init__(f"{file} is damaged at {offset}")


def reader(samples, collate=None):
    return BatchReader(samples, collate)


class Failing(list):
    """A list whose item 2 fails."""

    def __getitem__(self, index):
        if index == 2:
            raise Corrupt("a.jpg", 17)
        return super().__getitem__(index)


class ManyAtOnce(Failing):
    def __getitems__(self, indices):
        return [self[index] for index in indices]


def draws():
    return torch.rand(()).item(), random.random(), np.random.rand()


def states():
    return torch.get_rng_state().tolist(), random.getstate(), [str(part) for part in np.random.get_state()]


def test_a_batch_is_its_samples_put_together_with_the_time_it_took():
    delivery = reader([(torch.tensor(i), i * 2) for i in range(5)]).read([4, 0])
    assert [part.tolist() for part in delivery.batch] == [[4, 0], [8, 0]]
    assert delivery.fetch >= 0
    assert delivery.collate > 0


def test_a_data_set_that_reads_many_at_once_is_asked_so():
    asked = []

    class Many(list):
        def __getitems__(self, indices):
            asked.append(indices)
            return [self[index] for index in indices]

    assert reader(Many(range(5))).read([3, 1]).batch.tolist() == [3, 1]
    assert asked == [[3, 1]]


def test_reading_all_at_once_takes_the_indices_as_a_tensor():
    delivery = BatchReader(range(5), None, read_many=lambda index: index * 10).read([3, 1])
    assert delivery.batch.tolist() == [30, 10]


@pytest.mark.parametrize("kind", [Failing, ManyAtOnce])
def test_a_sample_that_cannot_be_read_is_named_and_its_error_is_the_cause(kind):
    failure = reader(kind(range(5))).__getitems__(Draw([0, 2, 4], 1))
    assert isinstance(failure, Failure)
    error = failure.error_of_user()
    assert str(error) == f"sample 2 of {kind.__name__} cannot be read: Corrupt: a.jpg is damaged at 17"
    assert isinstance(error.__cause__, Corrupt)


def test_in_a_worker_what_cannot_be_handed_over_is_told(monkeypatch):
    """torch would drop the batch with a traceback in passing, and wait for it for ever."""
    monkeypatch.setattr(one_batch, "get_worker_info", lambda: "some worker")
    with seeded(1):
        fails = reader([1, 2], collate=lambda samples: (torch.tensor(samples), lambda: 1)).__getitems__(Draw([0], 1))
        good = reader([1, 2], collate=lambda samples: (torch.tensor(samples), "text")).__getitems__(Draw([0, 1], 1))
    assert "a batch of list cannot be handed over from a worker process" in str(fails.error_of_user())
    assert good.batch[1] == "text"


def test_an_error_of_brims_own_keeps_its_sentence():
    class Refusing(list):
        def __getitem__(self, index):
            raise DataError("shard 3 is damaged")

    error = reader(Refusing([1])).__getitems__(Draw([0], 1)).error_of_user()
    assert str(error) == "shard 3 is damaged"


def test_an_index_beyond_the_end_is_a_sample_that_cannot_be_read():
    with pytest.raises(DataError, match=r"sample 9 of list.*IndexError"):
        reader([1, 2]).read([0, 9])


@pytest.mark.parametrize(
    ("samples", "said"),
    [
        ([torch.zeros(2), torch.zeros(2), torch.zeros(3)], r"sample 12 has a tensor \(3,\).*, sample 10 has .*\(2,\)"),
        ([np.zeros(2), np.zeros(3)], r"sample 11 has an array \(3,\) of float64, sample 10 has an array \(2,\)"),
        ([{"x": torch.zeros(2)}, {"x": torch.zeros(4)}], r"sample 11 has a tensor \(4,\) .* in \['x'\]"),
        ([(1, 2), (1, 2), (1,)], r"sample 12 has 1 parts \(\[0\]\) where sample 10 has 2 parts \(\[0\], \[1\]\)"),
        ([{"x": 1}, {"y": 1}], r"sample 11 has 1 parts \(\['y'\]\) where sample 10 has 1 parts \(\['x'\]\)"),
        ([torch.zeros(2), None], "sample 11 has a NoneType"),
        ([torch.zeros(2), torch.zeros(2, device="meta")], "sample 11 has .* on meta, sample 10 has .* on cpu"),
        ([torch.zeros(2, device="meta"), torch.zeros(2)], "sample 11 has .* on cpu, sample 10 has .* on meta"),
        ([object(), object()], "TypeError: default_collate"),
    ],
)
def test_samples_that_cannot_be_put_together_are_told_apart(samples, said):
    indices = list(range(10, 10 + len(samples)))
    with pytest.raises(DataError, match=rf"^{len(samples)} samples of dict cannot be put into one batch: {said}"):
        reader(dict(zip(indices, samples, strict=True))).read(indices)


def test_a_collate_function_of_ones_own_that_fails_is_told():
    with pytest.raises(DataError, match="collate_fn failed for 2 samples of list: ZeroDivisionError") as caught:
        reader([1, 2], collate=lambda samples: 1 / 0).read([0, 1])
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


MIXED = [
    (torch.zeros(2), torch.zeros(2, dtype=torch.float64)),
    (torch.zeros(2, dtype=torch.int32), torch.zeros(2)),
    ((1, torch.zeros(2)), (1, torch.zeros(2, dtype=torch.float64))),
    (1, 2.5),
]


@pytest.mark.parametrize(("usual", "odd"), MIXED)
@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_sample_of_another_dtype_is_refused_where_torch_would_widen_the_batch(usual, odd, at):
    samples = [odd if i == at else usual for i in range(4)]
    with pytest.raises(DataError, match=rf"samples of list differ in type: sample {at} has"):
        reader(samples).read([0, 1, 2, 3])


@pytest.mark.parametrize(("usual", "odd"), MIXED[:2])
def test_a_first_sample_of_a_wider_dtype_is_refused_as_well(usual, odd):
    with pytest.raises(DataError, match="samples of list differ in type: sample 1 has"):
        reader([odd, usual, usual]).read([0, 1, 2])


def test_numbers_of_numpy_and_python_of_one_dtype_make_a_batch_as_torch_makes_it():
    samples = [0.5, np.float64(1.5), 2.5]
    assert torch.equal(reader(samples).read([0, 1, 2]).batch, default_collate(samples))


@pytest.mark.parametrize(
    "samples",
    [["a", "b"], [(torch.zeros(2), 1, "a", b"b")] * 3, [{"x": [1, 2.0]}] * 2, [UserDict(x=1)] * 2, [True] * 2],
)
def test_samples_that_are_alike_are_put_together_as_torch_does(samples):
    made, wanted = reader(samples).read(list(range(len(samples)))).batch, default_collate(samples)
    assert type(made) is type(wanted)
    assert not types_differ([made, wanted])


def test_samples_with_numbers_in_them_are_not_searched_for_an_odd_one_batch_by_batch(monkeypatch):
    monkeypatch.setattr(one_batch, "odd_one", lambda *_: pytest.fail("every sample was walked through in Python"))
    reader([(torch.zeros(2), label) for label in range(4)]).read([0, 1, 2, 3])


def test_a_collate_function_of_ones_own_may_mix_types():
    samples = [torch.zeros(2), torch.zeros(2, dtype=torch.float64)]
    assert reader(samples, collate=lambda parts: torch.stack(parts)).read([0, 1]).batch.dtype == torch.float64


def test_no_samples_at_all_are_a_batch_without_samples():
    assert reader([1, 2]).read([]).batch.shape == (0,)


def test_samples_that_do_not_answer_to_their_indices_are_not_told_apart():
    assert odd_one([1, 2], [0]) is None
    assert odd_one([1, 2], [0, 1]) is None


@given(st.integers(0, 2**64 - 1))
def test_draws_follow_the_key_and_leave_the_process_its_own(key):
    before = states()
    with seeded(key, restore=True):
        first = draws()
    assert states() == before
    with seeded(key, restore=True):
        assert draws() == first
    with seeded(key ^ 2, restore=True):
        assert draws() != first


def test_the_generators_come_back_after_an_error_as_well():
    before = states()
    with pytest.raises(ZeroDivisionError), seeded(3, restore=True):
        draws()
        1 / 0  # noqa: B018
    assert states() == before


def test_what_the_process_draws_goes_on_as_if_nothing_had_been_read():
    np.random.seed(5)
    expected = np.random.rand(4).tolist()
    np.random.seed(5)
    seen = []
    for key in range(4):
        seen.append(np.random.rand())
        with seeded(key, restore=True):
            np.random.rand(key)
    assert seen == expected


def test_reading_within_reading_leaves_the_outer_draws_alone():
    with seeded(1, restore=True):
        draws()
        expected = draws()
    with seeded(1, restore=True):
        draws()
        with seeded(2, restore=True):
            draws()
        assert draws() == expected


class Augmented(list):
    def __getitem__(self, index):
        return torch.tensor(draws(), dtype=torch.float64)


def test_random_samples_are_a_function_of_the_key_of_the_draw():
    read = reader(Augmented(range(4))).__getitems__
    before = states()
    one, again, other = (read(Draw([0, 1], key)) for key in (7, 7, 8))
    assert all(isinstance(delivery, Delivery) for delivery in (one, again, other))
    assert torch.equal(one.batch, again.batch)
    assert not torch.isin(one.batch, other.batch).any()
    assert not torch.equal(one.batch[0], one.batch[1])
    assert states() == before


def test_the_second_of_two_normal_numbers_of_numpy_is_not_lost():
    np.random.seed(0)
    np.random.randn()
    expected = np.random.randn()
    np.random.seed(0)
    np.random.randn()
    with seeded(5, restore=True):
        np.random.randn()
    assert np.random.randn() == expected
