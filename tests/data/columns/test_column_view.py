import numpy as np
import pytest
import torch
from helpers.batches import assert_same_batches
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset, TensorDataset, random_split

from brim.data import Loader, as_feed, cached
from brim.data.columns.column_view import rests_on_tensors, view_of
from brim.errors import DataError


def pairs(samples, start=0):
    x = torch.arange(start, start + samples)
    return TensorDataset(x.float().unsqueeze(1).repeat(1, 3), x)


def plain(data, batch_size=4):
    return list(DataLoader(data, batch_size))


NESTED = {
    "a subset": lambda: Subset(pairs(10), [7, 2, 2, -1, 0]),
    "by an array": lambda: Subset(pairs(10), np.array([7, 2])),
    "by a tensor": lambda: Subset(pairs(10), torch.tensor([7, 2])),
    "by a range": lambda: Subset(pairs(10), range(3, 8)),
    "a random split": lambda: random_split(pairs(10), [7, 3])[0],
    "a subset of a subset": lambda: Subset(Subset(pairs(10), [9, 8, 7, 6]), [3, 0]),
    "two, one after the other": lambda: ConcatDataset([pairs(5), pairs(6, 100)]),
    "subsets, one after the other": lambda: ConcatDataset([Subset(pairs(5), [4, 1]), pairs(6, 100), pairs(1, 50)]),
    "a subset of two": lambda: Subset(ConcatDataset([pairs(5), pairs(6, 100)]), [10, 4, 5, 0]),
    "both, nested": lambda: ConcatDataset([Subset(ConcatDataset([pairs(3), pairs(2, 9)]), [4, 0]), pairs(2, 70)]),
}


@pytest.mark.parametrize("make", NESTED.values(), ids=NESTED.keys())
@pytest.mark.parametrize("adopted", [True, False])
def test_subsets_and_concatenations_of_tensors_are_columns_and_give_what_torch_gives(make, adopted):
    data = make()
    loader = as_feed(DataLoader(data, 4)) if adopted else Loader(data, 4, shuffle=False)
    assert loader.choice.path == "columns"
    assert len(loader) == len(plain(data))
    assert_same_batches(list(loader.batches(0, 0)), plain(data))
    loader.place(torch.device("cpu"))
    assert_same_batches(list(loader.batches(0, 1)), plain(data))
    shuffled = Loader(data, 4)
    rows = sorted(int(y) for _, batch in shuffled.batches(0, 0) for y in batch)
    assert rows == sorted(int(data[at][1]) for at in range(len(data)))


@given(st.data(), st.integers(1, 20), st.integers(1, 20), st.integers(1, 8))
def test_any_subset_of_any_concatenation_gives_what_torch_gives(data, first, second, batch_size):
    whole = ConcatDataset([pairs(first), pairs(second, 1000)])
    indices = data.draw(st.lists(st.integers(0, len(whole) - 1), min_size=1))
    subset = Subset(whole, indices)
    assert_same_batches(list(Loader(subset, batch_size, shuffle=False)), plain(subset, batch_size))


def test_a_subset_that_is_put_on_a_device_takes_its_own_rows_there_and_no_others():
    loader = Loader(Subset(pairs(10), [7, 2]), 2, shuffle=False)
    assert not loader.place(torch.device("meta"), room=2 * (3 * 4 + 8) - 1)
    assert loader.place(torch.device("meta"), room=2 * (3 * 4 + 8))
    assert len(loader.source.columns[0]) == 2


def test_arrays_and_the_cache_have_subsets_as_well(tmp_path):
    data = np.arange(12).reshape(6, 2)
    kept = cached(data, lambda row: row + 1, tmp_path, report=lambda sentence: None)
    for source in (data, kept):
        subset = Subset(source, [4, 0])
        assert view_of(subset) is not None
        assert_same_batches(
            [[batch] for batch in Loader(subset, 2, shuffle=False)], [[batch] for batch in plain(subset)]
        )


class Rows(Dataset):
    def __len__(self):
        return 5

    def __getitem__(self, index):
        return torch.tensor(index)


class OwnSubset(Subset):
    def __getitem__(self, index):
        return -1

    def __getitems__(self, indices):
        return [-1 for _ in indices]


@pytest.mark.parametrize(
    "data",
    [
        Subset(Rows(), [0, 1]),
        ConcatDataset([Rows(), pairs(3)]),
        ConcatDataset([pairs(3), TensorDataset(torch.arange(3))]),
        ConcatDataset([TensorDataset(torch.zeros(3, 2)), TensorDataset(torch.zeros(3, 4))]),
        ConcatDataset([TensorDataset(torch.zeros(3)), TensorDataset(torch.zeros(3).double())]),
        OwnSubset(pairs(3), [0]),
        Subset(pairs(3), [True, False]),
        Subset((torch.arange(3), torch.arange(3)), [0]),
    ],
    ids=["samples", "one of them samples", "other columns", "other shapes", "other types", "own", "a mask", "a tuple"],
)
def test_whatever_is_not_plainly_rows_of_columns_is_asked_for_its_samples(data):
    assert view_of(data) is None


def test_a_subset_beyond_its_data_set_is_refused_with_the_index():
    with pytest.raises(DataError, match="asks for sample 3 of a data set of 3"):
        Loader(Subset(pairs(3), [0, 3]))


def test_an_empty_subset_is_refused():
    with pytest.raises(DataError, match="empty"):
        Loader(Subset(pairs(3), []))


def test_torchs_collate_makes_columns_of_tensor_data_sets_alone():
    assert rests_on_tensors(ConcatDataset([Subset(pairs(3), [0]), pairs(2)]))
    assert not rests_on_tensors(Subset(torch.arange(3), [0]))
    assert not rests_on_tensors(ConcatDataset([pairs(2), Rows()]))
