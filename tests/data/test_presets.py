import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from brim.data.loader import Loader
from brim.data.presets import FittedWorkers, fit_workers, loader_preset, preset_of_card
from brim.data.reading.workers import BatchCost, Budget
from brim.errors import ConfigError

GIB = 1 << 30
PLENTY = Budget(cores=64)
BATCH = BatchCost(0.0, 0.0, bytes=10_000_000, tensors=2)


@pytest.mark.parametrize(
    ("card", "batch", "workers", "prefetch"),
    [("8GB", 4, 8, 2), ("16 GB", 8, 8, 4), ("default", 8, 8, 4), ("24GB+", 16, 16, 8), ("24gib", 16, 16, 8),
     ("80GB", 32, 16, 8)],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_a_preset_fits_brims_loader_and_torchs(card, batch, workers, prefetch):
    settings = loader_preset(card)
    assert (settings["batch_size"], settings["num_workers"], settings["prefetch_factor"]) == (batch, workers, prefetch)
    Loader(torch.arange(4), **settings)
    DataLoader(TensorDataset(torch.arange(4)), **settings)


def test_an_unknown_preset_names_those_there_are():
    with pytest.raises(ConfigError, match="8GB, default, 24GB, 48GB"):
        loader_preset("6GB")


@pytest.mark.parametrize(
    ("gib", "preset"),
    [(None, "default"), (6, "8GB"), (7.6, "8GB"), (11.8, "default"), (15.7, "default"), (22.1, "24GB"),
     (39.4, "24GB"), (47.4, "48GB"), (139, "48GB")],
)  # fmt: skip
def test_the_preset_of_a_card_goes_by_its_memory(gib, preset):
    assert preset_of_card(None if gib is None else int(gib * GIB)) == preset


def test_a_machine_with_room_gets_the_whole_preset():
    assert fit_workers(16, 8, BATCH, PLENTY) == FittedWorkers(16, 8)


@pytest.mark.parametrize(
    ("budget", "workers", "limit"),
    [
        (Budget(cores=3), 3, "3 cores"),
        (Budget(cores=64, shared_memory=400_000_000), 5, "400 MB of /dev/shm"),
        (Budget(cores=64, memory=1 << 30), 5, "1,074 MB of memory"),
        (Budget(cores=64, open_files=64), 4, "64 open files"),
    ],
)
def test_workers_are_cut_to_what_is_there_and_the_limit_is_named(budget, workers, limit):
    assert fit_workers(8, 4, BATCH, budget) == FittedWorkers(workers, 4, limit)


def test_batches_ahead_are_cut_only_where_there_would_be_no_worker_else():
    assert fit_workers(8, 8, BATCH, Budget(cores=64, shared_memory=64_000_000)) == FittedWorkers(
        1, 2, "64 MB of /dev/shm"
    )


def test_no_room_for_any_worker_is_none():
    found = fit_workers(8, 8, BATCH, Budget(cores=64, shared_memory=1_000_000))
    assert found == FittedWorkers(0, 1, "1 MB of /dev/shm")
