import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from brim import Loader
from brim.config.data_settings import with_settings
from brim.errors import ConfigError
from brim.workloads.sections import EvalLoaderSection, LoaderSection

X = torch.arange(20.0).reshape(10, 2)


class Rows(Dataset):
    def __len__(self):
        return 10

    def __getitem__(self, index):
        return X[index]


class Stream(IterableDataset):
    def __iter__(self):
        return iter(X)


class Judge:
    monitor, higher_is_better = "a", True

    def evaluate(self, model):
        return {"a": 1.0}


def set_in(data, place="train_ds", section=LoaderSection, **settings):
    return with_settings(data, section(**settings), place)


def refusal(data, **settings):
    with pytest.raises(ConfigError) as refused:
        set_in(data, **settings)
    return str(refused.value)


SAMPLES = [(x, number) for number, x in enumerate(X)]


@pytest.mark.parametrize("data", [(X, X), TensorDataset(X), Rows(), {"x": X}, SAMPLES], ids=lambda d: type(d).__name__)
def test_data_is_batched_as_the_section_says(data):
    loader = set_in(data, batch_size=4, shuffle=False, drop_last=True)
    assert isinstance(loader, Loader)
    assert (loader.batch_size, loader.shuffle, loader.drop_last, len(loader)) == (4, False, True, 2)


def test_settings_of_workers_reach_the_loader():
    loader = set_in(Rows(), num_workers=2, persistent_workers=True, prefetch_factor=3)
    request = loader.request
    assert (request.workers, request.prefetch, request.settings.persistent) == (2, 3, True)
    loader = set_in(Rows(), num_workers=1, batch_size=5, shuffle=False)
    assert torch.equal(torch.cat(list(loader)), X)
    assert loader.choice.path.startswith("1 worker")


@pytest.mark.gpu
def test_pinned_memory_is_asked_for_where_there_is_a_gpu():
    assert set_in(Rows(), pin_memory=True).request.settings.pin_memory


@pytest.mark.parametrize("data", [(X, X), Rows(), DataLoader(Rows(), 3), Loader(X), [X, X], Judge()])
def test_data_is_as_it_came_where_nothing_is_set(data):
    assert set_in(data) is data


@pytest.mark.parametrize(
    ("data", "settings"),
    [
        (DataLoader(Rows(), 3, shuffle=True), {"batch_size": 3, "shuffle": True, "num_workers": 0, "drop_last": False}),
        (DataLoader(Rows(), 3, num_workers=1, prefetch_factor=4), {"num_workers": 1, "prefetch_factor": 4}),
        (Loader(Rows(), 3), {"batch_size": 3, "shuffle": True, "num_workers": "auto"}),
        (Loader(Rows(), 3), {"pin_memory": False}),
    ],
)
def test_a_loader_that_says_the_same_is_as_it_came(data, settings):
    assert set_in(data, **settings) is data


@pytest.mark.parametrize(
    ("data", "settings", "part"),
    [
        (DataLoader(Rows(), 3), {"batch_size": 4}, "train_ds.batch_size=4 contradicts the DataLoader of the workload, "
         "which has batch_size=3; leave it out, or hand over the Dataset"),
        (DataLoader(Rows(), 3), {"shuffle": True}, "which has shuffle=False"),
        (DataLoader(Rows(), 3), {"drop_last": True}, "which has drop_last=False"),
        (DataLoader(Rows(), 3), {"num_workers": 2}, "which has num_workers=0"),
        (DataLoader(Rows(), 3), {"persistent_workers": True}, "which has persistent_workers=False"),
        (DataLoader(Rows(), batch_sampler=[[0], [1, 2]]), {"batch_size": 1}, "makes its own batches"),
        (Loader(Rows(), 3), {"batch_size": 4}, "contradicts the Loader of the workload"),
        (Loader(Rows(), 3, num_workers=0), {"num_workers": 4}, "which has num_workers=0"),
        ([(X, X), (X, X)], {"batch_size": 4}, "the data is a list, which makes its own batches"),
        (Judge(), {"batch_size": 4}, "the data is a Judge, which makes its own batches"),
        (Stream(), {"shuffle": True}, "the data is a stream"),
        (Stream(), {"num_workers": 2}, "the data is a stream"),
        (None, {"batch_size": 4}, "there is no data for it"),
    ],
)  # fmt: skip
def test_a_setting_that_cannot_act_is_one_sentence(data, settings, part):
    assert part in refusal(data, **settings)


def test_a_stream_has_batches_of_the_size_that_is_set():
    assert [len(batch) for batch in set_in(Stream(), batch_size=4)] == [4, 4, 2]


def test_evaluation_is_batched_by_its_own_section():
    loader = set_in((X, X), "valid_ds", EvalLoaderSection, batch_size=7, shuffle=False)
    assert [len(x) for x, _ in loader.in_order()] == [7, 3]
