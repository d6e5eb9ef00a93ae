import random
from collections import namedtuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import Dataset, TensorDataset, default_collate

from brim.data.randomness.order import batch_bounds, epoch_permutation
from brim.data.reading.batched import BatchedAccess, BatchedSource, batched_access, conform, same
from brim.errors import DataError

Pair = namedtuple("Pair", "x y")
SAMPLES = 40
X, Y = torch.randn(SAMPLES, 3), torch.arange(SAMPLES)
X[::3] = torch.nan


class Made:
    """A data set that gives whatever ``get`` gives."""

    def __init__(self, get, samples=SAMPLES):
        self.get, self.samples = get, samples

    def __len__(self):
        return self.samples

    def __getitem__(self, index):
        return self.get(index)


def rows_of_columns(**columns):
    """Like an HF data set without a format: a dict of values for a number, a dict of lists for a list."""

    def get(index):
        if isinstance(index, list):
            return {name: [column[at] for at in index] for name, column in columns.items()}
        if isinstance(index, int):
            return {name: column[index] for name, column in columns.items()}
        raise TypeError(f"wrong key type {type(index)}")

    return Made(get, len(next(iter(columns.values()))))


def lists_of_samples(get, samples=SAMPLES):
    """A data set that makes a list of samples for a list of numbers."""
    return Made(lambda index: [get(at) for at in index] if isinstance(index, list) else get(index), samples)


TAKEN = {
    "a tensor": Made(lambda i: X[i]),
    "tensors with NaN": Made(lambda i: (X[i], Y[i])),
    "a list": Made(lambda i: [X[i], Y[i]]),
    "a dict": Made(lambda i: {"x": X[i], "y": Y[i]}),
    "a named tuple": Made(lambda i: Pair(X[i], Y[i])),
    "nested": Made(lambda i: {"pair": Pair(X[i], [Y[i], (Y[i],)])}),
    "arrays": Made(lambda i: (X.numpy()[i], Y.numpy()[i])),
    "half precision": Made(lambda i: X.bfloat16()[i]),
    "a tensor data set": TensorDataset(X, Y),
    "numbers by list only": rows_of_columns(x=X.tolist(), y=Y.tolist()),
    "texts among them": rows_of_columns(text=[f"text {i}" for i in range(SAMPLES)], y=Y.tolist()),
    "a list of samples": lists_of_samples(lambda i: (X[i], i, f"text {i}")),
}


@pytest.mark.parametrize("data", TAKEN.values(), ids=TAKEN.keys())
def test_batched_access_is_taken_and_gives_the_bits_and_containers_of_default_collate(data):
    access, faster = batched_access(data, SAMPLES)
    index = [3, 39, 0, 3, 12]
    plain = default_collate([data[at] for at in index])
    assert same(access.read(torch.tensor(index)), plain)
    assert faster > 0


def off_by_one_at_the_end(index):
    return X[index] if isinstance(index, int) else X[np.minimum(np.asarray(index), SAMPLES - 2)]


def raising(index):
    if not isinstance(index, int):
        raise RuntimeError("one at a time, please")
    return X[index]


def other_kind(index):
    return Y[index] if isinstance(index, int) else Y[index].float()


def random_flip(index):
    return X[index] * random.choice([-1, 1])


def random_noise(index):
    return Y[index] + torch.rand(())


def numpy_noise(index):
    return Y[index] + np.random.rand()


LEFT = {
    "one that ignores the index": Made(lambda i: X[0] if isinstance(i, int) else X[:2]),
    "one that takes the first of them": Made(lambda i: X[int(np.ravel(i)[0])]),
    "another dtype": Made(other_kind),
    "random by torch": Made(random_noise),
    "random by Python": Made(random_flip),
    "random by numpy": Made(numpy_noise),
    "off by one at the last": Made(off_by_one_at_the_end),
    "raising": Made(raising),
    "another order of the parts": Made(lambda i: {"x": X[i], "y": Y[i]} if isinstance(i, int) else (X[i], Y[i])),
    "fewer samples": Made(lambda i: X[i] if isinstance(i, int) else X[i][:1]),
    "normed over the batch": Made(lambda i: Y[i].float() - Y[i].float().mean()),
    "another shape": Made(lambda i: X[i] if isinstance(i, int) else X[i].unsqueeze(1)),
    "another device": Made(lambda i: X[i] if isinstance(i, int) else X[i].to("meta")),
    "a list that is a plain list": [1, 2, 3] * 10,
    "samples that cannot be put together": Made(lambda i: torch.zeros(1 + i % 3)),
    "samples that cannot be read": Made(lambda i: 1 / 0),
}


@pytest.mark.parametrize("data", LEFT.values(), ids=LEFT.keys())
def test_batched_access_is_left_alone_where_it_gives_anything_else(data):
    assert batched_access(data, len(data)) is None


def test_what_warns_when_asked_for_many_is_left_alone():
    data = Made(lambda i: torch.tensor(i) * 2)  # warns for a tensor, not for a list
    access, _ = batched_access(data, SAMPLES)
    assert access.form == "list"


@pytest.mark.parametrize("samples", [1, 2, 3])
def test_very_short_data_sets_are_tried_as_well(samples):
    access, _ = batched_access(Made(lambda i: X[:samples][i], samples), samples)
    assert access.read(torch.tensor([samples - 1])).shape == (1, 3)


def test_trying_leaves_the_generators_of_the_process_alone():
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()
    for data in (Made(random_noise), Made(random_flip), Made(numpy_noise)):
        batched_access(data, SAMPLES)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]
    assert all(np.array_equal(one, other) for one, other in zip(np.random.get_state(), before[2], strict=True))


def test_trying_what_is_impossible_reads_no_more_samples_than_the_plain_way_needs():
    asked = []

    def get(index):
        if not isinstance(index, int):
            raise TypeError("one at a time")
        asked.append(index)
        return X[index]

    batched_access(Made(get), SAMPLES)
    assert len(asked) <= 16 + 16 + 2


def plain_batches(data, batch_size, order):
    return [default_collate([data[at] for at in order[a:b]]) for a, b in batch_bounds(len(order), batch_size)]


@given(
    samples=st.integers(1, 50),
    batch_size=st.integers(1, 20),
    columns=st.integers(1, 5),
    shuffle=st.booleans(),
)
def test_blocks_of_batches_give_what_samples_one_by_one_give(samples, batch_size, columns, shuffle):
    table = torch.arange(samples * columns).reshape(columns, samples)
    data = Made(lambda i: tuple(column[i] for column in table), samples)
    access, _ = batched_access(data, samples)
    order = epoch_permutation(samples, 0, 0) if shuffle else None
    batches = list(BatchedSource(access, samples).read(order, batch_bounds(samples, batch_size)))
    expected = plain_batches(data, batch_size, list(range(samples)) if order is None else order.tolist())
    assert same(batches, expected)


BOXES = [[4 * i, 4 * i + 1, 4 * i + 2, 4 * i + 3] for i in range(SAMPLES)]


@pytest.mark.parametrize(
    "data",
    [rows_of_columns(box=BOXES, name=list("abcd") * 10), lists_of_samples(BOXES.__getitem__)],
    ids=["a dict of lists", "a list of samples"],
)
def test_as_many_samples_as_a_sample_has_parts_are_not_taken_for_its_parts(data):
    access, _ = batched_access(data, SAMPLES)
    batches = list(BatchedSource(access, SAMPLES).read(None, batch_bounds(SAMPLES, 4)))
    assert same(batches, plain_batches(data, 4, range(SAMPLES)))


def test_texts_alone_are_read_in_lists():
    data = lists_of_samples(lambda i: f"text {i}")
    access, _ = batched_access(data, SAMPLES)
    first = next(BatchedSource(access, SAMPLES).read(None, batch_bounds(SAMPLES, 2)))
    assert first == ["text 0", "text 1"]


def test_a_batch_with_a_part_that_cannot_be_sliced_is_read_alone():
    data = TAKEN["texts among them"]
    access, _ = batched_access(data, SAMPLES)
    batches = list(BatchedSource(access, SAMPLES).read(None, batch_bounds(SAMPLES, 16)))
    assert [len(batch["text"]) for batch in batches] == [16, 16, 8]
    assert same(batches, plain_batches(data, 16, range(SAMPLES)))


@pytest.mark.parametrize("form", ["tensor", "list", "array"])
def test_a_sample_that_fails_in_a_batch_is_named(form):
    def get(index):
        if 7 in np.atleast_1d(index):
            raise OSError(5, "bad sector", "file 7")
        return X[index]

    with pytest.raises(DataError, match=r"^sample 7 of Made cannot be read: OSError.*bad sector") as caught:
        BatchedAccess(Made(get), form, X[:2]).read(torch.tensor([1, 7, 3]))
    assert isinstance(caught.value.__cause__, OSError)


def test_a_batch_that_fails_while_its_samples_do_not_is_told_by_its_size():
    with pytest.raises(DataError, match=r"^3 samples of Made cannot be read: RuntimeError: one at a time"):
        BatchedAccess(Made(raising), "list", X[:2]).read(torch.tensor([1, 7, 3]))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (X, X.double()),
        (X, X[:4]),
        (Y, Y + 1),
        ([Y], (Y,)),
        ({"y": Y}, {"x": Y}),
        ([Y], [Y, Y]),
        (["a"], ["b"]),
        (Y, Y.tolist()),
        (torch.tensor([float("nan")]), torch.tensor([0.0])),
    ],
)
def test_batches_that_differ_in_anything_are_not_the_same(one, other):
    assert not same(one, other)
    assert not same(other, one)


def test_the_sign_of_zero_is_a_bit_as_well():
    assert not same(torch.tensor([0.0]), torch.tensor([-0.0]))


def test_conforming_makes_columns_of_lists_and_arrays_and_keeps_the_types_of_the_template():
    template = Pair([torch.zeros(2, dtype=torch.int64), ["a", "b"]], {"z": torch.zeros(2)})
    made = conform(template, ([np.arange(2), ("c", "d")], {"z": torch.ones(2), "unused": 3}), lists_are_samples=False)
    assert same(made, Pair([torch.arange(2), ["c", "d"]], {"z": torch.ones(2)}))


def test_a_data_set_that_draws_but_seldom_changes_anything_is_not_read_in_batches():
    class Seldom(Dataset):
        def __len__(self):
            return 4000

        def __getitem__(self, index):
            value = torch.as_tensor(index, dtype=torch.float32)
            return -value if torch.rand(()) < 1e-6 else value

    assert batched_access(Seldom(), 4000) is None


class Rare(Dataset):
    """Whose batches are right for the samples that are tried, and wrong for others."""

    def __init__(self, get, samples=4000):
        self.get, self.samples = get, samples

    def __len__(self):
        return self.samples

    def __getitem__(self, index):
        return self.get(index)


TABLE = torch.arange(4000)[:, None].repeat(1, 16)


def test_a_batch_with_too_few_rows_is_an_error_and_not_a_shorter_batch():
    data = Rare(lambda index: {"ids": TABLE[index][:100]})  # cuts each sample to 100; of a batch, its first 100
    source = BatchedSource(batched_access(data, 4000)[0], 4000)
    with pytest.raises(DataError, match="Rare gave 100 rows where 128 samples were asked for at once"):
        list(source.read(None, batch_bounds(4000, 128)))


def test_augmentation_that_starts_later_is_an_error_and_not_one_draw_for_all():
    data = Rare(lambda index: TABLE[index] + (torch.rand(()) if data.augment else 0))
    data.augment = False
    source = BatchedSource(batched_access(data, 4000)[0], 4000)
    assert sum(map(len, source.read(None, batch_bounds(4000, 128)))) == 4000
    data.augment = True
    with pytest.raises(DataError, match="draws random numbers, once for the 128 samples"):
        list(source.read(None, batch_bounds(4000, 128)))


def test_rows_of_texts_are_counted_as_well():
    data = lists_of_samples(lambda i: f"text {i}")
    access = BatchedAccess(Made(lambda index: ["a"]), "list", ["a", "b"])
    with pytest.raises(DataError, match="gave 1 rows where 2"):
        access.read(torch.tensor([0, 1]))
    assert batched_access(data, SAMPLES)[0].read(torch.tensor([0, 1])) == ["text 0", "text 1"]


def test_a_sample_that_comes_out_differently_among_others_is_an_error():
    x = torch.randn(4000, 6)
    x[::200, 2] = torch.nan  # few enough to be missed by the check, and each spoils the block that it is in
    data = Rare(lambda index: torch.zeros_like(x[index]) if torch.isnan(x[index]).any() else x[index])
    access = BatchedAccess(data, "tensor", x[1:3])
    with pytest.raises(DataError, match=r"sample \d+ of Rare is another one when asked for among 1,024 at once"):
        list(BatchedSource(access, 4000).read(None, batch_bounds(4000, 1024, start=1)))


def test_a_data_set_that_keeps_what_it_was_asked_for_is_not_read_in_batches():
    class Keeping(Rare):
        def __init__(self):
            super().__init__(None)
            self.asked = []

        def __getitem__(self, index):
            self.asked.append(index)
            return TABLE[index]

    assert batched_access(Keeping(), 4000) is None


def test_the_share_of_a_rank_beyond_the_samples_of_a_batch_is_an_empty_batch():
    data = lists_of_samples(lambda at: (X[at], float(at)))
    access, _ = batched_access(data, SAMPLES)
    shares = list(BatchedSource(access, SAMPLES).read(None, iter([(0, 2), (2, 2), (2, 3)])))
    assert [len(labels) for _, labels in shares] == [2, 0, 1]
    alone = next(BatchedSource(access, SAMPLES).read(None, iter([(2, 2)])))
    assert [(part.shape, part.dtype) for part in alone] == [((0, 3), X.dtype), ((0,), torch.float64)]
