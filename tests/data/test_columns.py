import collections

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import Dataset, TensorDataset

from brim.data import columns as columns_module
from brim.data.columns import ColumnSource, column_bytes, column_length, columns_of
from brim.data.order import batch_bounds, epoch_permutation, rank_bounds
from brim.data.times import FeedTimes
from brim.errors import DataError

Pair = collections.namedtuple("Pair", "x y")
X = torch.arange(6)


def lists(batches):
    return [batch.tolist() for batch in batches]


@pytest.mark.parametrize("data", [X, X.numpy(), X.numpy()[1:], np.zeros((3, 2), np.uint16)], ids=repr)
def test_a_tensor_or_array_is_one_column_over_the_same_memory(data):
    column = columns_of(data)
    assert column.tolist() == data.tolist()
    assert column.data_ptr() == (data.data_ptr() if isinstance(data, torch.Tensor) else data.ctypes.data)


@pytest.mark.parametrize("data", [(X, X), {"x": X, "y": (X, X.numpy())}, Pair(X, X.numpy())])
def test_containers_of_columns_keep_their_type(data):
    assert type(columns_of(data)) is type(data)


def test_a_tensor_dataset_is_a_list_of_its_columns_as_torch_collates_it():
    assert [part is X for part in columns_of(TensorDataset(X, X))] == [True, True]


class Rows(Dataset):
    """Samples of its own making, whatever its attributes are called."""

    def __init__(self, columns):
        self.columns = columns

    def __len__(self):
        return 5

    def __getitem__(self, index):
        return index


@pytest.mark.parametrize(
    "data",
    [[X, X], torch.tensor(3), (X, torch.tensor(3)), (X, "text"), (), {}, [1, 2], (X, [1, 2]), 7, "text", Rows(None)],
)
def test_what_is_not_columns_throughout_is_none(data):
    assert columns_of(data) is None


class Moved(TensorDataset):
    def __getitem__(self, index):
        return [part + 1 for part in super().__getitem__(index)]


def test_a_tensor_dataset_with_samples_of_its_own_is_not_its_columns():
    assert columns_of(Moved(X)) is None


@pytest.mark.parametrize("columns", [["age", "income"], ("age",), {"age": 3}, torch.tensor([0, 2])], ids=str)
def test_a_data_set_that_notes_the_names_or_numbers_of_its_columns_is_still_asked_for_its_samples(columns):
    assert columns_of(Rows(columns)) is None


@pytest.mark.parametrize("column", [np.array(["a", "b"]), np.array([{}, {}]), np.array([b"a"])], ids=["U", "O", "S"])
def test_texts_and_objects_are_refused_with_their_dtype(column):
    with pytest.raises(DataError, match="cannot become a tensor"):
        columns_of((X, column))


@pytest.mark.parametrize(
    "column",
    [np.arange(3).astype("datetime64[s]"), np.arange(3, dtype=">i4"), np.arange(3)[::-1], np.zeros(3, np.longdouble)],
    ids=["dates", "other byte order", "backwards", "longdouble"],
)
def test_arrays_that_torch_cannot_take_are_converted_or_refused_in_a_sentence(column):
    try:
        assert columns_of(column).tolist() == column.tolist()
    except DataError as error:
        assert str(column.dtype) in str(error)


def test_a_memory_map_is_not_read_into_memory(tmp_path, recwarn):
    np.arange(10).tofile(tmp_path / "column")
    mapped = np.memmap(tmp_path / "column", dtype=np.int64, mode="r")
    assert columns_of(mapped).data_ptr() == mapped.ctypes.data
    assert not recwarn.list


def test_length_and_bytes_are_those_of_all_columns():
    columns = {"x": torch.zeros(4, 3), "y": (torch.zeros(4, dtype=torch.uint8),)}
    assert (column_length(columns), column_bytes(columns)) == (4, 4 * 3 * 4 + 4)


@pytest.mark.parametrize(("sizes", "said"), [((4, 5), "4, 5"), ((0, 0), "empty")])
def test_columns_must_be_of_one_length_and_not_empty(sizes, said):
    with pytest.raises(DataError, match=said):
        ColumnSource(tuple(torch.zeros(size) for size in sizes))


@given(
    samples=st.integers(1, 60),
    batch_size=st.integers(1, 20),
    shuffle=st.booleans(),
    start=st.integers(0, 61),
    world=st.integers(1, 5),
    data=st.data(),
)
def test_blocks_of_any_size_give_what_rows_one_by_one_give(samples, batch_size, shuffle, start, world, data):
    rank = data.draw(st.integers(0, world - 1))
    order = epoch_permutation(samples, 1, 2) if shuffle else None
    bounds = [rank_bounds(*both, rank, world) for both in batch_bounds(samples, batch_size, start)]
    read = ColumnSource({"x": torch.arange(samples) * 3, "y": (torch.arange(samples).float(),)}).read
    plain = list(range(samples)) if order is None else order.tolist()
    batches = list(read(order, iter(bounds)))
    assert lists(batch["x"] for batch in batches) == [[3 * i for i in plain[first:stop]] for first, stop in bounds]
    assert lists(batch["y"][0] for batch in batches) == [plain[first:stop] for first, stop in bounds]


def test_little_is_gathered_before_the_first_batch_and_never_more_than_the_limits(monkeypatch):
    monkeypatch.setattr(columns_module, "MOST_BLOCK_BYTES", 5 * 4 * 8)  # five batches
    taken = []
    bounds = (taken.append(at) or at for at in batch_bounds(400, 4))
    ahead = [len(taken) - at for at, _ in enumerate(ColumnSource(torch.arange(400)).read(None, bounds))]
    assert ahead[0] == 1
    assert max(ahead) == 5


def test_a_batch_larger_than_a_block_comes_whole(monkeypatch):
    monkeypatch.setattr(columns_module, "MOST_BLOCK_BYTES", 1)
    assert lists(ColumnSource(X).read(None, batch_bounds(6, 4))) == [[0, 1, 2, 3], [4, 5]]


@pytest.mark.parametrize("order", [None, torch.arange(6)], ids=["in order", "shuffled"])
def test_batches_are_copies(order):
    column = torch.arange(6)
    for batch in ColumnSource(column).read(order, batch_bounds(6, 4)):
        batch.zero_()
    assert column.tolist() == list(range(6))


def test_an_epoch_that_is_being_read_goes_on_where_the_columns_are_put():
    source = ColumnSource(torch.arange(8))
    epoch = source.read(None, batch_bounds(8, 2))
    assert next(epoch).device.type == "cpu"
    source.place(torch.device("meta"))
    assert [batch.device.type for batch in epoch] == ["meta"] * 3
    assert source.is_resident
    assert source.device.type == "meta"


def test_gathering_is_timed():
    times = FeedTimes()
    list(ColumnSource(X, times).read(None, batch_bounds(6, 2)))
    assert times.fetch > 0
