import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import brim
from brim.engine.control.tier import apply_tier
from brim.errors import ConfigError
from brim.hardware.tiers import TIERS, most_gpus

X = torch.randn(20, 3)


class Caches(nn.Linear):
    def __init__(self, use_cache):
        super().__init__(3, 1)
        self.use_cache = use_cache


@pytest.mark.parametrize(
    ("name", "batch_size", "use_cache", "gpus"),
    [("large", 2048, True, 8), ("medium", 1024, True, 4), ("small", 512, False, 2)],
)
def test_a_tier_decides_batch_cache_and_gpus(name, batch_size, use_cache, gpus):
    model = Caches(not use_cache)
    trainer = brim.Trainer(model, (X, X[:, :1]), loss_fn=nn.MSELoss(), device="cpu", tier=name)
    assert trainer.train_data.batch_size == batch_size
    assert model.use_cache is use_cache
    assert most_gpus(name) == gpus == TIERS[name].gpus


def test_no_tier_changes_nothing():
    data, model = (X, X), Caches(True)
    assert apply_tier(None, model, data) is data
    assert model.use_cache is True


def test_a_model_without_a_cache_stays_as_it_is():
    model = nn.Linear(3, 1)
    apply_tier("large", model, (X, X))
    assert not hasattr(model, "use_cache")


@pytest.mark.parametrize("data", [DataLoader(TensorDataset(X), 512), brim.Loader(X, 512)])
def test_a_loader_of_the_same_size_is_kept(data):
    assert apply_tier("small", nn.Linear(3, 1), data) is data


@pytest.mark.parametrize(
    ("data", "has"),
    [
        (DataLoader(TensorDataset(X), 32), "batches of 32"),
        (brim.Loader(X, 32), "batches of 32"),
        ([(X, X), (X, X)], "batches of its own"),
    ],
)
def test_a_loader_of_another_size_is_refused(data, has):
    with pytest.raises(ConfigError, match=f"tier='small' is batches of 512, and train_data has {has}"):
        apply_tier("small", nn.Linear(3, 1), data)


def test_a_tier_that_does_not_exist_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match="tier='larg' is not known; did you mean 'large'"):
        brim.Trainer(nn.Linear(3, 1), (X, X), loss_fn=nn.MSELoss(), device="cpu", tier="larg")
