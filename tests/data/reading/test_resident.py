import random

import numpy as np
import pytest
import torch

from brim.data import Loader
from brim.data.reading.one_batch import BatchReader
from brim.data.reading.resident import ResidentData, is_hf_dataset, read_all
from brim.errors import DataError


class Made:
    """A data set that gives whatever ``get`` gives."""

    def __init__(self, get, samples=40):
        self.get, self.samples = get, samples

    def __len__(self):
        return self.samples

    def __getitem__(self, index):
        return self.get(index)


def read(get, samples=40):
    return read_all(BatchReader(Made(get, samples), None), samples, lambda sentence: None)


def test_reading_the_whole_takes_several_batches_and_their_containers():
    columns = read(lambda index: {"x": torch.tensor(index), "y": (index, 1.5)}, samples=2500)
    assert columns["x"].tolist() == list(range(2500))
    assert type(columns["y"]) is list
    assert columns["y"][1].dtype == torch.float64


@pytest.mark.parametrize(
    ("get", "said"),
    [
        (lambda index: "text", "keeps tensors"),
        (lambda index: torch.zeros(1 + index // 1024), "differ in shape"),
        (lambda index: torch.zeros(1 + index // 5), "sample 5 has a tensor"),
    ],
)
def test_what_cannot_be_kept_as_columns_is_refused(get, said):
    with pytest.raises(DataError, match=said):
        read(get, samples=1100)


@pytest.mark.parametrize(
    "draw",
    [lambda: torch.rand(()), random.random, lambda: np.random.rand()],
    ids=["torch", "random", "numpy"],
)
def test_augmentation_is_not_frozen_it_is_refused(draw):
    with pytest.raises(DataError, match="draws random numbers for them: its augmentation would be the same"):
        read(lambda index: torch.tensor(float(index)) + draw())


def test_augmentation_of_a_few_samples_is_refused_as_well():
    with pytest.raises(DataError, match="draws random numbers"):
        read(lambda index: torch.tensor(float(index)) + (random.random() if index == 1033 else 0), samples=1100)


class Switched:
    """Whose augmentation is switched on by the user, and one that is told the epoch."""

    augment, epoch = False, 0

    def __len__(self):
        return 40

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __getitem__(self, index):
        return torch.tensor([float(index), float(self.epoch)]) + (torch.rand(()) if self.augment else 0)


def resident(data):
    loader = Loader(data, 8, shuffle=False, feed="resident")
    loader.report = lambda sentence: None
    return loader


def test_what_is_changed_between_epochs_is_read_anew():
    loader = resident(Switched())
    for epoch in range(3):
        assert torch.cat(list(loader.batches(0, epoch)))[:, 1].tolist() == [epoch] * 40


def test_augmentation_that_starts_in_a_later_epoch_is_refused_when_it_starts():
    data = Switched()
    loader = resident(data)
    assert len(list(loader.batches(0, 0))) == 5
    data.augment = True
    with pytest.raises(DataError, match="draws random numbers"):
        loader.batches(0, 1)


def test_a_data_set_that_changes_while_it_is_read_is_kept_with_a_warning():
    class Counting(Switched):
        reads = 0

        def __getitem__(self, index):
            self.reads += 1
            return torch.tensor(index)

    said = []
    ResidentData(Counting(), None, None, said.append)()
    assert said[-1].startswith("Counting changes while it is read (reads)")


class LikeHF:
    __module__ = "datasets.arrow_dataset"

    def __init__(self, values, kind=None):
        self.values, self.format, self._fingerprint = values, {"type": kind}, "a"

    def __len__(self):
        return len(self.values)

    def __getitem__(self, index):
        return {"x": [self.values[at] for at in index] if isinstance(index, list) else self.values[index]}


def test_an_hf_data_set_that_is_kept_is_read_anew_when_its_fingerprint_changes():
    data = LikeHF([1, 2, 3])
    loader = Loader(data, 3, shuffle=False)
    loader.report = lambda sentence: None
    assert next(loader.batches(0, 0))["x"].tolist() == [1, 2, 3]
    data.values, data._fingerprint = [4, 5, 6], "b"
    assert next(loader.batches(0, 1))["x"].tolist() == [4, 5, 6]


def test_only_an_hf_data_set_without_a_transform_has_rows_that_never_change():
    assert is_hf_dataset(LikeHF([1]))
    assert not is_hf_dataset(LikeHF([1], "custom"))
    assert not is_hf_dataset([1])
