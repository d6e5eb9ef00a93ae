"""Worker processes that a user asked for keep what reading changes to themselves; a run that goes on says so."""

import random

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import brim
from brim.data import as_feed
from brim.engine.run_state.worker_state import remark_on_shares, remark_on_workers

X = torch.randn(12, 3, generator=torch.Generator().manual_seed(0))


class Rows(Dataset):
    def __len__(self):
        return len(X)

    def __getitem__(self, index):
        return X[index], X[index, :1]


class Drawing(Rows):
    def __init__(self):
        self.rng = random.Random(0)

    def __getitem__(self, index):
        return X[index] * self.rng.random(), X[index, :1]


class Cached(Rows):
    def __init__(self):
        self.rows, self.file = {}, None

    def __getitem__(self, index):
        self.file = self.file or object()
        return self.rows.setdefault(index, (X[index], X[index, :1]))


@pytest.mark.parametrize(
    ("data", "workers", "position", "is_told"),
    [(Drawing(), 1, 4, True), (Drawing(), 0, 4, False), (Drawing(), 1, 0, False), (Drawing(), 1, 12, False),
     (Cached(), 1, 4, False), (Rows(), 1, 4, False)],
    ids=["a generator", "no workers", "a new epoch", "the end of one", "a cache and a file", "nothing"],
)  # fmt: skip
def test_state_of_workers_is_told_where_it_is_lost_within_an_epoch(data, workers, position, is_told):
    remark = remark_on_workers(as_feed(DataLoader(data, 4, num_workers=workers)), position)
    assert ("Drawing.rng" in str(remark)) == is_told
    assert (remark is None) != is_told


@pytest.mark.parametrize(
    ("data", "is_told"), [(Drawing(), True), (Cached(), False), (Rows(), False), ((X, X[:, :1]), False)]
)
def test_data_that_reading_changes_is_told_where_ranks_read_shares_of_it(data, is_told):
    remark = remark_on_shares(brim.Loader(data, 4))
    assert ("Drawing.rng" in str(remark)) == is_told
    assert (remark is None) != is_told
    assert remark_on_shares(as_feed(DataLoader(Drawing(), 4, sampler=range(12)))) is None  # of which each reads all


def test_a_run_that_is_resumed_within_an_epoch_says_so(tmp_path):
    def fit(steps):
        trainer = brim.Trainer(
            nn.Linear(3, 1), DataLoader(Drawing(), 4, num_workers=1), loss_fn=nn.MSELoss(), device="cpu", threads=1,
            max_steps=steps, run_dir=tmp_path / "run", loggers=False,
        )  # fmt: skip
        trainer.fit(resume="auto")
        return (tmp_path / "run" / "log.txt").read_text()

    assert "in each worker process for itself" not in fit(2)
    assert "Drawing.rng: changed by reading, in each worker process for itself" in fit(4)
