"""The forecast needs no GPU: two H200 that are not there."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import brim
from brim.engine.components.settings import TrainerSettings
from brim.engine.data_parallel.gain import example_batch, forecast_gain, why_one_is_faster
from brim.engine.distributed.ranks import Ranks
from brim.engine.run.strategy import choose_strategy
from brim.errors import ConfigError
from brim.hardware import Gpu, Inventory
from brim.record import Journal

GPUS = [torch.device("cuda", index) for index in range(2)]
X, Y = torch.randn(64, 32), torch.randn(64, 1)


@pytest.fixture(autouse=True)
def two_gpus(monkeypatch):
    cards = tuple(Gpu(index, "NVIDIA H200", 150_110_011_392) for index in range(2))
    here = Inventory(cards, has_mps=False, cores=4, python="3.11", torch="2.13")
    for place in ("brim.engine.data_parallel.gain.inventory", "brim.engine.run.strategy.inventory"):
        monkeypatch.setattr(place, lambda: here)


def small():
    return nn.Sequential(nn.Linear(32, 8), nn.ReLU(), nn.Linear(8, 1))


def large():
    return nn.Sequential(*(nn.Linear(4096, 4096) for _ in range(4)))


def test_a_small_model_is_forecast_to_train_slower_on_two_gpus_and_a_large_batch_faster():
    settings = TrainerSettings()
    assert forecast_gain(small(), nn.MSELoss(), (X, Y), settings, GPUS) < 1
    wide = torch.empty(65536, 4096)
    assert forecast_gain(large(), nn.MSELoss(), (wide, wide), settings, GPUS) > 1


def test_the_sentence_says_what_is_done_and_how_to_have_it_otherwise():
    said = why_one_is_faster(small(), nn.MSELoss(), (X, Y), TrainerSettings(), GPUS)
    assert said.startswith("DataParallel on 2 GPUs is forecast to train at 0.")
    assert "so training is on cuda:0 alone" in said and "strategy='dp'" in said


@pytest.mark.parametrize("reason", [RuntimeError("no such operator"), StopIteration()])
def test_a_forecast_that_fails_decides_nothing(monkeypatch, reason):
    def fails(*_, **__):
        raise reason

    monkeypatch.setattr("brim.speed_up.forecast.speed_up", fails)
    assert why_one_is_faster(small(), nn.MSELoss(), (X, Y), TrainerSettings(), GPUS) == ""


def test_the_model_and_the_generators_are_as_they_were():
    model = nn.Sequential(nn.Linear(32, 8), nn.Dropout(), nn.Linear(8, 1))
    before = [parameter.clone() for parameter in model.parameters()]
    state = torch.get_rng_state()
    assert why_one_is_faster(model, nn.MSELoss(), (X, Y), TrainerSettings(), GPUS)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert all(parameter.grad is None for parameter in model.parameters())


class Counts(Dataset):
    def __init__(self):
        self.read = 0

    def __len__(self):
        return 64

    def __getitem__(self, index):
        self.read += 1
        return X[index], Y[index]


@pytest.mark.parametrize(
    "data", [(X, Y), TensorDataset(X, Y), brim.Loader((X, Y), 16), DataLoader(TensorDataset(X, Y), 16)]
)
def test_columns_in_memory_are_read(data):
    batch = example_batch(data)
    assert len(batch[0]) == (16 if hasattr(data, "batch_size") else 32)


def test_other_data_is_not_read():
    counts = Counts()
    assert example_batch(counts) is None
    assert counts.read == 0
    assert example_batch([(X, Y)]) is None


@pytest.mark.parametrize(("strategy", "devices"), [("auto", 1), ("dp", 2)], ids=["nobody asked", "by name"])
def test_auto_stays_on_one_gpu_and_a_strategy_by_name_is_obeyed(capsys, strategy, devices):
    asked = []

    def why_one(found):
        asked.append(len(found))
        return "one is faster"

    settings = TrainerSettings(strategy=strategy)
    chosen = choose_strategy(settings, small(), Ranks(), Journal(), why_one)
    assert len(chosen.devices) == devices
    assert chosen.name == ("single" if devices == 1 else "dp")
    assert asked == ([2] if strategy == "auto" else [])
    assert ("one is faster" in capsys.readouterr().err) == (strategy == "auto")


def test_auto_uses_all_where_one_is_not_faster():
    assert choose_strategy(TrainerSettings(), small(), Ranks(), Journal()).name == "dp"


def test_a_loss_over_the_whole_batch_is_computed_by_one_gpu_and_refused_by_name(parallel):
    two_pass = brim.TwoPass(lambda model, batch: model(batch[0]), lambda rows: (rows @ rows.T).mean())
    said = why_one_is_faster(small(), two_pass, (X, Y), TrainerSettings(), GPUS)
    assert "brim.TwoPass" in said and "brim.gather" in said and f"{GPUS[0]} alone" in said
    with pytest.raises(ConfigError, match=r"strategy='dp' cannot be used: loss_fn is brim.TwoPass"):
        parallel(small(), two_pass)
