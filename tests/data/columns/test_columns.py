import collections

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, TensorDataset

from brim.data.columns.columns import column_length, columns_of
from brim.errors import DataError

Pair = collections.namedtuple("Pair", "x y")
X = torch.arange(6)


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
    assert column_length(columns) == 4
