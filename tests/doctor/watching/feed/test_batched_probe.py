import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset

from brim.doctor.watching.feed.batched_probe import batched_seconds


class Rows(Dataset):
    def __init__(self, draws=False):
        self.values, self.draws = np.arange(100.0), draws

    def __len__(self):
        return len(self.values)

    def __getitem__(self, index):
        return {"x": self.values[index] + (np.random.rand() if self.draws else 0.0)}


def test_columns_and_data_sets_that_take_many_indices_are_timed():
    data = TensorDataset(torch.ones(100, 2))
    for dataset in (data, Subset(data, range(50)), Rows()):
        assert batched_seconds(iter(DataLoader(dataset, batch_size=32)), 32) > 0


def test_what_does_not_give_the_same_batch_is_not():
    assert batched_seconds(iter(DataLoader(Rows(draws=True), batch_size=32)), 32) is None
    assert batched_seconds(iter(DataLoader([torch.ones(2)] * 40, batch_size=32)), 32) is None
    assert batched_seconds(iter(DataLoader(Rows(), batch_size=32, collate_fn=list)), 32) is None
    assert batched_seconds(iter(DataLoader(Rows(), batch_size=4)), 4) is None
