"""Data that a callback changes between two steps, where batches are read ahead as for a GPU."""

from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import brim
from brim.data.batches.prefetch import DevicePrefetcher
from brim.data.probing.state import StateWatch

X = torch.ones(12, 3)


class Scaled(Dataset):
    def __init__(self):
        self.scale, self.reads = 1.0, []

    def __len__(self):
        return len(X)

    def __getitem__(self, index):
        self.reads.append(index)
        return X[index] * self.scale, X[index, :1]


class Grows(brim.Callback):
    def __init__(self, change):
        self.change = change

    def on_step_end(self, trainer, step, loss):
        self.change(step + 1)


class Sent:
    def __init__(self, batch):
        self.batch = batch

    def receive(self):
        return self.batch


@pytest.fixture(autouse=True)
def ahead(monkeypatch):
    monkeypatch.setattr(DevicePrefetcher, "runs_ahead", True)
    monkeypatch.setattr(DevicePrefetcher, "send", lambda self, batch: Sent(batch))


def scales(data, callbacks, folder, **settings):
    """What the loss sees, step by step, and what is said."""
    seen = []

    def loss_fn(model, batch):
        seen.append(int(batch[0][0, 0]))
        return model(batch[0]).square().mean()

    trainer = brim.Trainer(
        nn.Linear(3, 1), data, loss_fn=loss_fn, device="cpu", threads=1, epochs=2, run_dir=folder / "run",
        loggers=False, callbacks=callbacks, sliceable=False, **settings,
    )  # fmt: skip
    trainer.fit()
    return seen, (folder / "run" / "log.txt").read_text()


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_batch_that_was_read_before_the_change_is_read_again(tmp_path, shuffle):
    data = Scaled()
    grows = Grows(lambda step: setattr(data, "scale", float(step)))
    seen, said = scales(DataLoader(data, 4, shuffle=shuffle), [grows], tmp_path)
    assert seen == [1, 2, 3, 4, 5, 6]
    assert said.count("scale was changed between two steps, so each batch is read when its step comes") == 1


def test_a_list_of_batches_is_read_again_too(tmp_path, monkeypatch):
    monkeypatch.setattr(DevicePrefetcher, "send", lambda self, batch: Sent([part.clone() for part in batch]))
    batches = [[X[:4].clone(), X[:4, :1]] for _ in range(3)]

    def change(step):
        for x, _ in batches:
            x.fill_(step)

    seen, said = scales(batches, [Grows(change)], tmp_path)
    assert seen == [1, 2, 3, 4, 5, 6]
    assert "was changed between two steps" in said


def test_a_list_whose_first_batch_has_become_another_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(DevicePrefetcher, "send", lambda self, batch: Sent([part.clone() for part in batch]))
    rows = torch.arange(12.0).reshape(4, 3)
    batches = [[rows + 1, rows[:, :1] + 1] for _ in range(3)]

    def change(step):
        for x, y in batches:
            x += 1
            y += 1

    seen, said = scales(batches, [Grows(change)], tmp_path)
    assert seen == [1, 2, 3, 4, 5, 6]
    assert "was changed between two steps" in said


def test_in_an_order_of_the_users_the_batch_that_was_read_is_told(tmp_path):
    data = Scaled()
    grows = Grows(lambda step: setattr(data, "scale", float(step)))
    seen, said = scales(DataLoader(data, 4, sampler=range(12)), [grows], tmp_path)
    assert seen == [1, 1, 3, 4, 5, 6]
    assert "the next one had been read before the change" in said


def test_reading_that_changes_the_data_set_is_no_change_between_steps(tmp_path):
    class Counts(Scaled):
        def __getitem__(self, index):
            self.scale += 1
            return super().__getitem__(index)

    data = Counts()
    _, said = scales(DataLoader(data, 4), [Grows(lambda step: None)], tmp_path)
    assert "between two steps" not in said and len(data.reads) == 24


def test_what_cannot_be_told_from_itself_is_not_looked_at(tmp_path):
    data = Scaled()
    data.numbers = iter(row for row in X)
    _, said = scales(DataLoader(data, 4), [Grows(lambda step: next(data.numbers, None))], tmp_path)
    assert "between two steps" not in said


def test_what_reading_has_made_untellable_is_not_read_again(tmp_path):
    class Opens(Scaled):
        def __getitem__(self, index):
            if len(self.reads) == 9:
                self.lines = iter(row for row in X)
            return super().__getitem__(index)

    data = Opens()
    _, said = scales(DataLoader(data, 4), [Grows(lambda step: None)], tmp_path)
    assert len(data.reads) == 24 and "and not while the one before it is computed" not in said


def test_data_is_looked_at_twice_a_step(tmp_path, monkeypatch):
    data, looks, before = Scaled(), [], []
    look = StateWatch.marks
    monkeypatch.setattr(StateWatch, "marks", lambda watch: (looks.append(watch.is_of(data)), look(watch))[1])
    scales(DataLoader(data, 2), [Grows(lambda step: before.append(sum(looks)))], tmp_path)
    assert {after - earlier for earlier, after in pairwise(before[1:6])} == {2}
