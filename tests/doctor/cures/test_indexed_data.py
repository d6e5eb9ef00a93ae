import random

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset
from torch.utils.data._utils import fetch

from brim.doctor.cures.applied import apply_cures
from brim.doctor.cures.indexed_data import gives_whole_batches
from brim.doctor.order import Cures


class Columns(Dataset):
    def __init__(self):
        self.x, self.y, self.calls = np.arange(40.0).reshape(20, 2), torch.arange(20), 0

    def __len__(self):
        return 20

    def __getitem__(self, index):
        self.calls += 1
        return {"x": self.x[index], "both": (self.y[index], self.x[index])}


class Numbers(Columns):
    def __getitem__(self, index):
        return int(self.y[index]), float(self.x[index, 0])


class Draws(Columns):
    def __getitem__(self, index):
        return self.x[index] + random.random()


class LooksAcross(Columns):
    def __getitem__(self, index):
        return torch.as_tensor(self.x[index]).cumsum(0)  # of a row; of a batch it would be down the rows


class Refuses(Columns):
    def __getitem__(self, index):
        if not isinstance(index, int):
            raise IndexError(index)
        return self.x[index]


@pytest.mark.parametrize(
    ("dataset", "whole"),
    [(Columns(), True), (Numbers(), False), (Draws(), False), (LooksAcross(), False), (Refuses(), False)],
)
def test_a_data_set_is_tried_before_it_is_trusted(dataset, whole, monkeypatch):
    assert gives_whole_batches(dataset, [3, 1, 4]) is whole
    monkeypatch.setattr(fetch._MapDatasetFetcher, "fetch", fetch._MapDatasetFetcher.fetch)
    random.seed(0)
    plain = [repr(batch) for batch in DataLoader(dataset, batch_size=5)]
    apply_cures(Cures(batched_access=True))
    random.seed(0)
    if not isinstance(dataset, Draws):  # trying it draws numbers, which the comparison of losses would show
        assert [repr(batch) for batch in DataLoader(dataset, batch_size=5)] == plain


def test_batches_that_are_trusted_are_fetched_by_one_index(monkeypatch):
    monkeypatch.setattr(fetch._MapDatasetFetcher, "fetch", fetch._MapDatasetFetcher.fetch)
    apply_cures(Cures(batched_access=True))
    data = Columns()
    loader = DataLoader(data, batch_size=5)
    list(loader)
    before = data.calls
    assert len(list(loader)) == 4
    assert data.calls - before == 8  # one for the form of a batch, one for the batch
