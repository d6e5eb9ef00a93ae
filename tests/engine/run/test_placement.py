import dataclasses

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from brim import Callback, Loader, Trainer
from brim.data.reading.packed_list import WORTH_PACKING


class AfterEpoch(Callback):
    def __init__(self, change):
        self.change = change

    def on_epoch_end(self, trainer, epoch):
        self.change()


def batches_seen(tmp_path, data, change=lambda: None, epochs=2, **settings):
    """The batches that reach the loss, in a run with ``change`` after each epoch."""
    seen = []

    def loss(model, batch):
        seen.append(batch)
        return model.weight.sum() * 0

    trainer = Trainer(
        nn.Linear(1, 1), data, loss_fn=loss, device="cpu", threads=1, epochs=epochs, run_dir=tmp_path / "run",
        callbacks=[AfterEpoch(change)], capture="off", **settings,
    )  # fmt: skip
    trainer.fit()
    return seen


def test_tensors_that_a_callback_replaces_are_trained_on_in_the_next_epoch(tmp_path):
    data = TensorDataset(torch.zeros(64, 1))

    def replace():
        data.tensors = (data.tensors[0] + 1,)

    seen = batches_seen(tmp_path, DataLoader(data, 16), replace, epochs=3)
    assert [float(x.mean()) for (x,) in seen] == [0] * 4 + [1] * 4 + [2] * 4


class Labelled(Dataset):
    def __init__(self):
        self.labels = [0.0] * WORTH_PACKING
        self.transform = lambda label: label

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return torch.tensor([self.transform(self.labels[index])])


@pytest.mark.parametrize("workers", [0, 1])
def test_labels_and_a_transform_that_a_callback_changes_are_trained_on_in_the_next_epoch(tmp_path, workers):
    data = Labelled()

    def relabel():
        data.labels[:] = [1.0] * len(data)
        data.transform = lambda label: label + 5

    seen = batches_seen(tmp_path, DataLoader(data, 2500, num_workers=workers), relabel)
    assert [float(x.mean()) for x in seen] == [0] * 4 + [6] * 4


@dataclasses.dataclass
class Quartered:
    x: torch.Tensor

    def __post_init__(self):
        self.x = self.x / 4


def test_a_batch_that_is_a_dataclass_is_trained_on_as_it_was_made(tmp_path):
    seen = batches_seen(tmp_path, [Quartered(torch.ones(4, 1)) for _ in range(3)], epochs=1)
    assert [batch.x.unique().tolist() for batch in seen] == [[0.25]] * 3


def log_of(tmp_path):
    return (tmp_path / "run" / "log.txt").read_text()


def test_a_list_of_samples_is_shuffled_into_batches_and_one_of_batches_is_told(tmp_path):
    samples = [(torch.full((8,), float(at)), torch.tensor([at])) for at in range(64)]
    seen = batches_seen(tmp_path, samples, epochs=1)
    assert [len(x) for x, _ in seen] == [32, 32]
    assert "the items of a list as samples" in log_of(tmp_path)


def test_a_list_of_what_may_be_batches_is_told_with_what_to_do(tmp_path):
    batches_seen(tmp_path, [(torch.zeros(8), torch.zeros(8))] * 3, epochs=1)
    assert "3 ready batches, as they come (were these single samples, hand over brim.Loader(" in log_of(tmp_path)


class ByIndex(Dataset):
    def __init__(self):
        self.x, self.reads = torch.randn(64, 1), []

    def __len__(self):
        return 64

    def __getitem__(self, index):
        return self.x[index]


def test_one_line_of_the_log_says_that_a_data_set_could_be_read_in_batches(tmp_path, monkeypatch):
    monkeypatch.setattr("brim.data.source.WORTH_TELLING", 0.0)
    monkeypatch.setattr("brim.data.reading.dataset_probe.LONGEST_BATCHED_TRIAL", float("inf"))
    batches_seen(tmp_path, Loader(ByIndex(), 16), epochs=1)
    assert log_of(tmp_path).count('feed="batched"') == 1
