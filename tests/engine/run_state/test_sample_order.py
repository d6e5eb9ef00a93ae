import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import BatchSampler, DataLoader, Dataset, SubsetRandomSampler, TensorDataset

import brim
from brim.data import as_feed
from brim.engine.run_state.sample_order import SampleOrder, is_last_position

X = torch.arange(20.0)


def order(data, seed=0, accumulation=1):
    return SampleOrder.of(as_feed(data), seed, accumulation)


def test_it_survives_json():
    for data in (brim.Loader(X, 4), [X], DataLoader(TensorDataset(X), 4, sampler=SubsetRandomSampler(range(9)))):
        made = order(data, seed=3, accumulation=2)
        assert SampleOrder.from_json(made.to_json()) == made
    assert SampleOrder.from_json(None) is None


@pytest.mark.parametrize("wrong", [3, [], {}, {"seed": 1}, {"seed": 1, "kind": []}, {"seed": 1, "kind": "x", "y": 1}])
def test_something_else_is_not_taken_for_one(wrong):
    with pytest.raises(ValueError, match="order of samples"):
        SampleOrder.from_json(wrong)


def test_loaders_of_torchs_that_brim_adopts_have_the_order_of_brims():
    assert order(DataLoader(TensorDataset(X), 4, shuffle=True)) == order(brim.Loader(TensorDataset(X), 4))


def test_what_a_sampler_of_the_users_says_of_itself_is_in_it():
    class Pairs(BatchSampler):
        pass

    def pairs(size):
        return DataLoader(TensorDataset(X), batch_sampler=Pairs(range(20), size, drop_last=False))

    assert order(pairs(4)) == order(pairs(4))
    assert not order(pairs(4)).is_same_place(order(pairs(5)))


def test_a_data_set_with_an_order_of_its_own_is_not_another():
    class Own(Dataset):
        def __len__(self):
            return 20

        def __getitem__(self, index):
            return X[index]

        def epoch_order(self, seed, epoch):
            return torch.arange(20)

    assert not order(brim.Loader(Own(), 4)).is_same_place(order(brim.Loader(X, 4)))


def test_differences_are_told_with_both_values():
    then, now = order(brim.Loader(X, 4)), order(brim.Loader(X[:10], 4, shuffle=False), seed=2)
    assert then.what_differs(now) == [
        "seed 0 then and 2 now", "number of samples 20 then and 10 now", "shuffle True then and False now",
    ]  # fmt: skip


@given(samples=st.integers(1, 30), batch_size=st.integers(1, 8), drop_last=st.booleans())
def test_the_last_position_is_that_after_the_last_batch(samples, batch_size, drop_last):
    loader = brim.Loader(torch.zeros(samples), batch_size, drop_last=drop_last)
    position = 0
    for number in range(len(loader)):
        assert not is_last_position(loader, position), number
        position = min(position + batch_size, samples)
    assert is_last_position(loader, position)
