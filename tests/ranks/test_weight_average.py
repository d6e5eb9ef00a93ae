"""The moving average of weights over ranks: replicas have it alike, shards have their part of it."""

import shutil

import pytest
import torch
from rank_training import ROUNDING, X, Y, are_the_same_bits, difference, this_rank, train
from torch import nn

import brim
from brim.errors import ConfigError


class Parts(nn.Module):
    """Blocks of sizes that ranks do not divide, a tied pair of weights, a frozen part."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1 + this_rank())
        self.first = nn.Linear(6, 13)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(13, 13), nn.Tanh(), nn.LayerNorm(13)) for _ in range(2))
        self.last, self.tied = nn.Linear(13, 13), nn.Linear(13, 13)
        self.tied.weight = self.last.weight
        self.frozen = nn.Linear(13, 1).requires_grad_(False)

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = x + block(x)
        return self.frozen(self.tied(torch.tanh(self.last(x))))


def train_averaged(strategy="auto", max_steps=15, **settings):
    held_out = brim.Loader((X[:50], Y[:50]), 24)
    fixed = {"ema": 0.9, "eval_data": held_out, "eval_every": "5 steps"}
    return train(model=Parts(), strategy=strategy, max_steps=max_steps, **{**fixed, **settings})


@pytest.fixture(scope="module")
def trained(launch_once):
    """What the first rank has of trainings that several tests look at: ``trained(2, strategy="fsdp")``."""
    made = {}

    def train_once(world, **settings):
        key = (world, *sorted(settings.items()))
        if key not in made:
            made[key] = launch_once(world, train_averaged, **settings)[0]
        return made[key]

    return train_once


@pytest.fixture
def stopped(trained, tmp_path):
    """The folder of a run that was stopped in the midst, a copy for each test to go on with."""

    def copy(world, **settings):
        return str(shutil.copytree(trained(world, max_steps=7, **settings)["run"], tmp_path / "stopped"))

    return copy


@pytest.mark.matrix(1)
@pytest.mark.parametrize(
    ("strategy", "ranks"), [("ddp", 2), ("fsdp", 3), pytest.param("fsdp", 2, marks=pytest.mark.slow)]
)
def test_the_average_over_ranks_is_that_of_one(launch, trained, strategy, ranks):
    expected = trained(1)
    for found in launch(ranks, train_averaged, strategy=strategy):
        assert difference(found, expected) <= ROUNDING
        assert found["losses"] == pytest.approx(expected["losses"], rel=1e-4, abs=1e-6)
        assert found["metrics"]["loss"] == pytest.approx(expected["metrics"]["loss"], rel=1e-4)


@pytest.mark.slow
def test_the_sharded_training_is_the_one_without_an_average(launch, trained):
    averaged = trained(2, strategy="fsdp", restore_best=False)
    plain = launch(2, train_averaged, strategy="fsdp", ema=None, restore_best=False)[0]
    assert averaged["losses"] == plain["losses"]  # whatever evaluations have put in their place meanwhile
    assert not are_the_same_bits(averaged, plain)
    whole = trained(1, restore_best=False)
    assert difference(averaged, whole) <= ROUNDING


class OwnMetric:
    """Data that evaluates a model by itself, the user's own with the averaged weights."""

    monitor, higher_is_better = "error", False

    def evaluate(self, model):
        assert type(model) is Parts
        return {"error": float((model(X) - Y).square().mean())}


def train_with_own_metric(strategy="auto"):
    return train_averaged(strategy, eval_data=OwnMetric())


@pytest.mark.slow
def test_data_that_evaluates_itself_gets_the_averaged_weights(launch):
    expected = launch(1, train_with_own_metric)[0]
    for found in launch(2, train_with_own_metric, strategy="fsdp"):
        assert found["metrics"]["error"] == pytest.approx(expected["metrics"]["error"], rel=1e-4)
        assert difference(found, expected) <= ROUNDING


@pytest.mark.slow
def test_an_average_of_shards_resumes_to_the_bit(launch, trained, stopped):
    expected, run = trained(2, strategy="fsdp", restore_best=False), stopped(2, strategy="fsdp")
    for found in launch(2, train_averaged, strategy="fsdp", restore_best=False, resume=run):
        assert are_the_same_bits(found, expected)


@pytest.mark.matrix(1)
@pytest.mark.parametrize(
    ("before", "after"),
    [((2, "fsdp"), (1, "auto")), ((1, "auto"), (2, "fsdp")), ((2, "fsdp"), (3, "fsdp")), ((2, "fsdp"), (2, "ddp"))],
    ids=["shards to one", "one to shards", "other shards", "shards to replicas"],
)
def test_an_average_goes_on_over_other_ranks(launch, trained, stopped, before, after):
    expected, run = trained(1, restore_best=False), stopped(before[0], strategy=before[1])
    for found in launch(after[0], train_averaged, strategy=after[1], restore_best=False, resume=run):
        assert difference(found, expected) <= ROUNDING
        assert found["metrics"]["loss"] == pytest.approx(expected["metrics"]["loss"], rel=1e-4)


def resume_with_another_decay(run):
    return train_averaged("fsdp", ema=0.5, resume=run)


def test_another_decay_is_refused_on_all_ranks(launch, stopped):
    for outcome in launch.outcomes(2, resume_with_another_decay, run=stopped(2, strategy="fsdp")):
        assert "ema=0.9 and 15 parameters, and this run has ema=0.5 and 15" in outcome.output


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_an_average_of_weights_in_bf16_has_32_bits(launch, trained, stopped, strategy):
    settings = {"precision": "bf16-true", "ema": 0.999, "restore_best": False}
    expected = trained(1, **settings)
    for found in launch(2, train_averaged, strategy=strategy, **settings):
        assert difference(found, expected) <= 2e-2
        assert all(tensor.dtype == torch.bfloat16 for tensor in found["weights"].values())
    run = stopped(2, strategy=strategy, **settings)
    for again in launch(2, train_averaged, strategy=strategy, resume=run, **settings):
        assert are_the_same_bits(again, found)


class AsksForIt(brim.Callback):
    def __init__(self):
        self.said = ""

    def on_step_end(self, trainer, step, loss):
        try:
            _ = trainer.ema_model
        except ConfigError as error:
            self.said = str(error)


def ask_for_the_model(strategy):
    asks = AsksForIt()
    train_averaged(strategy, max_steps=2, callbacks=[asks])
    return asks.said


def test_a_model_of_averaged_shards_is_not_at_hand_during_a_run(launch):
    assert all("keeps the averaged weights in shards" in said for said in launch(2, ask_for_the_model, strategy="fsdp"))
