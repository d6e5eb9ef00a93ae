"""Memory that runs out on one rank: it tries again alone, and the training stays what it was."""

import random

import pytest
import torch
from rank_training import ROUNDING, X, Y, are_the_same_bits, columns, difference, this_rank, train
from torch import nn

import brim

WORLD, STEPS = 3, 8
FULL = "CUDA out of memory. Tried to allocate 2.00 GiB"


class RunsOut(torch.autograd.Function):
    """Passes numbers through; in the backward pass there is no memory for more than ``most`` samples."""

    @staticmethod
    def forward(context, x, most):
        context.most = most
        return x.clone()

    @staticmethod
    def backward(context, gradient):
        if len(gradient) > context.most:
            raise torch.OutOfMemoryError(FULL)
        return gradient, None


class Greedy(nn.Module):
    """Runs out on one rank: in ``stage``, from call ``first`` on, with more than ``most`` samples in a slice."""

    def __init__(self, rank=-1, stage="", first=0, most=0, times=10**9):
        super().__init__()
        torch.manual_seed(2)
        self.net = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))
        self.is_victim, self.stage, self.first, self.most, self.times = this_rank() == rank, stage, first, most, times
        self.calls = {"forward": 0, "backward": 0, "evaluation": 0}

    def runs_out(self, stage, samples):
        self.calls[stage] += 1
        if not self.is_victim or stage != self.stage or self.calls[stage] <= self.first or samples <= self.most:
            return False
        self.times -= 1
        return self.times >= 0

    def calculate_loss(self, batch):
        x, y = batch
        if self.runs_out("forward" if self.training else "evaluation", len(x)):
            raise torch.OutOfMemoryError(FULL)
        hidden = self.net[0](x)
        if self.training and self.runs_out("backward", len(x)):
            hidden = RunsOut.apply(hidden, self.most)
        return (self.net[1:](hidden) - y).square().mean()


def train_trials(trials, world_batch=32):
    """One training after the other, each with another mishap."""
    held_out = brim.Loader((X[:50], Y[:50]), 24)
    return [
        train(
            columns(world_batch), Greedy(**mishap), loss_fn=None, max_steps=STEPS, eval_data=held_out, eval_every=1,
            optimizer="AdamW", lr=1e-2, run_dir=f"run-{number}", **settings,
        )
        for number, (mishap, settings) in enumerate(trials)
    ]  # fmt: skip


def random_mishap(draw):
    mishap = {
        "rank": draw.randrange(WORLD),
        "stage": draw.choice(["forward", "backward", "evaluation"]),
        "first": draw.randrange(8),  # with slices, in the middle of a batch
        "most": draw.choice([1, 2, 3, 5]),
        "times": draw.choice([1, 2, 10**9]),
    }
    return mishap, draw.choice([{}, {"micro_batch": 4}, {"gradient_accumulation_steps": 2}])


@pytest.mark.slow
def test_mishaps_on_any_rank_at_any_moment_change_nothing(launch):
    draw = random.Random(11)
    trials = [random_mishap(draw) for _ in range(20)]
    plain = {
        "whole": ({}, {}),
        "accumulated": ({}, {"gradient_accumulation_steps": 2}),
    }
    (alone,) = launch(1, train_trials, trials=list(plain.values()))
    expected = dict(zip(plain, alone, strict=True))
    ranks = launch(WORLD, train_trials, trials=trials)
    for number, (mishap, settings) in enumerate(trials):
        like = expected["accumulated" if "gradient_accumulation_steps" in settings else "whole"]
        for of_rank in ranks:
            assert difference(of_rank[number], like) <= ROUNDING, mishap
            assert of_rank[number]["metrics"]["loss"] == pytest.approx(like["metrics"]["loss"], rel=1e-4)
            assert are_the_same_bits(of_rank[number], ranks[0][number])


@pytest.mark.slow
def test_all_ranks_may_run_out_at_once(launch):
    (alone,) = launch(1, train_trials, trials=[({}, {})])
    for of_rank in launch(2, everybody_runs_out):
        assert difference(of_rank, alone[0]) <= ROUNDING


def everybody_runs_out():
    trial = {"rank": this_rank(), "stage": "forward", "first": 2, "most": 2 + this_rank()}
    return train_trials([(trial, {})])[0]


@pytest.mark.matrix(1)
@pytest.mark.parametrize("stage", ["forward", "backward"])
@pytest.mark.parametrize(("rank", "first"), [(0, 3), (2, 3), (1, 0)])
def test_where_one_rank_cannot_go_on_all_end_and_keep_a_checkpoint(launch, stage, rank, first):
    mishap = {"rank": rank, "stage": stage, "first": first, "most": 0}
    outcomes = launch.outcomes(WORLD, train_trials, trials=[(mishap, {})])
    assert [outcome.error for outcome in outcomes] == ["CannotFit"] * WORLD
    assert [outcome.exit_code for outcome in outcomes] == [3] * WORLD
    told = [outcome.message for outcome in outcomes]
    assert "a micro-batch is one sample already" in told[rank]
    assert all("another rank" in message for number, message in enumerate(told) if number != rank)
    run = launch.folder / f"launch-{launch.launches}" / "run-0"
    assert [path.name for path in (run / "checkpoints").glob("step-*")] == [f"step-{first:09d}"]


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 2])
def test_where_one_rank_cannot_evaluate_all_end(launch, rank):
    mishap = {"rank": rank, "stage": "evaluation", "first": 0, "most": 0}
    outcomes = launch.outcomes(WORLD, train_trials, trials=[(mishap, {})])
    assert [outcome.error for outcome in outcomes] == ["CannotFit"] * WORLD


class RunsOutStepping(torch.optim.SGD):
    """Has no memory in its third step, on one rank."""

    steps = 0

    def step(self, closure=None):
        self.steps += 1
        if self.steps == 3 and this_rank() == 1:
            raise torch.OutOfMemoryError(FULL)
        return super().step(closure)


def runs_out_stepping():
    return train(optimizer=lambda parameters: RunsOutStepping(parameters, lr=0.01), max_steps=8)


def test_an_optimizer_that_runs_out_on_one_rank_leaves_nobody_waiting(launch):
    outcomes = launch.outcomes(3, runs_out_stepping)
    assert outcomes[1].error == "OptimizerRanOut"
    assert all(outcome.error for outcome in outcomes)
    run = launch.folder / f"launch-{launch.launches}" / "run"
    assert not list((run / "checkpoints").glob("step-*"))  # of weights of which some have moved
