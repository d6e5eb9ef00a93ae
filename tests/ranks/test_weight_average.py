"""The moving average of weights over ranks."""

import pytest
from rank_training import ROUNDING, X, Y, difference, net, train

import brim


def train_averaged(strategy="auto"):
    held_out = brim.Loader((X[:50], Y[:50]), 24)
    return train(model=net(), strategy=strategy, ema=0.9, max_steps=15, eval_data=held_out, eval_every="5 steps")


def test_the_average_over_ranks_is_that_of_one(launch):
    expected = launch(1, train_averaged)[0]
    for found in launch(2, train_averaged, strategy="ddp"):
        assert difference(found, expected) <= ROUNDING
        assert found["metrics"]["loss"] == pytest.approx(expected["metrics"]["loss"], rel=1e-4)


def test_an_average_of_shards_is_refused(launch):
    for outcome in launch.outcomes(2, train_averaged, strategy="fsdp"):
        assert "ema= has no average of shards" in outcome.output
