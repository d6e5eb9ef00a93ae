"""Compiled losses and channels last over ranks: each computes its part so, and all make the step of one process."""

import pytest
import torch
from rank_training import ROUNDING, X, Y, difference, net, this_rank, train
from torch import nn

import brim

pytestmark = pytest.mark.slow


def pictures():
    torch.manual_seed(1 + this_rank())
    return nn.Sequential(nn.Unflatten(1, (1, 2, 3)), nn.Conv2d(1, 8, 2), nn.Tanh(), nn.Flatten(), nn.Linear(16, 1))


def train_compiled(compile):
    return train(model=net(), compile=compile, max_steps=16)


def train_pictures(memory_format):
    data = brim.Loader((X, Y), 16)
    return train(
        data, pictures(), memory_format=memory_format, optimizer={"name": "AdamW", "fused": True}, max_steps=16
    )


@pytest.mark.parametrize("way", ["aot_eager", "auto"])
def test_ranks_train_compiled_as_one_process_does_uncompiled(launch, way):
    expected = launch(1, train_compiled, compile=False)[0]
    found = launch(2, train_compiled, compile=way)
    assert difference(found[0], expected) <= ROUNDING
    assert difference(found[0], found[1]) == 0.0


def test_ranks_train_channels_last_as_one_process_does_without(launch):
    expected = launch(1, train_pictures, memory_format="preserve")[0]
    found = launch(2, train_pictures, memory_format="channels_last")
    assert difference(found[0], expected) <= ROUNDING
    assert difference(found[0], found[1]) == 0.0


def train_shards():
    train(model=pictures(), strategy="fsdp", memory_format="channels_last", max_steps=2)


def test_shards_are_not_laid_out_otherwise(launch):
    outcomes = launch.outcomes(2, train_shards)
    assert [outcome.error for outcome in outcomes] == ["ConfigError"] * 2
    assert all("is not for strategy='fsdp'" in outcome.message for outcome in outcomes)
