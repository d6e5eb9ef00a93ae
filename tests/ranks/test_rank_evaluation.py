"""Evaluating over ranks: the numbers of one rank, and the same decisions everywhere."""

import pytest
import torch
from rank_training import ROUNDING, X, Y, are_the_same_bits, columns, difference, net, train
from torch import nn

import brim
from brim.engine.trainer import run_now
from brim.workloads.recommender import BPR, EvalDataLoader, Interactions, TrainDataLoader


class Evaluations(brim.Callback):
    def __init__(self):
        self.values = []

    def on_evaluate(self, trainer, metrics):
        self.values.append((run_now(trainer).state.progress.step, metrics["loss"]))


def evaluations(samples, batch_size=16, **settings):
    """The evaluations of a run, and one afterwards, on data that is not trained on."""
    seen = Evaluations()
    held_out = brim.Loader((X[:samples] + 0.3, Y[:samples]), batch_size)
    trained = train(eval_data=held_out, callbacks=[seen], eval_every=settings.pop("eval_every", 1), **settings)
    return {**trained, "evaluations": seen.values}


@pytest.mark.matrix(1)
@pytest.mark.parametrize(("samples", "batch_size"), [(100, 16), (3, 2), (1, 16)])
def test_an_evaluation_is_that_of_one_rank(launch, samples, batch_size):
    (alone,) = launch(1, evaluations, samples=samples, batch_size=batch_size, max_steps=30)
    for of_rank in launch(4, evaluations, samples=samples, batch_size=batch_size, max_steps=30):
        assert [step for step, _ in of_rank["evaluations"]] == [step for step, _ in alone["evaluations"]]
        values = [value for _, value in of_rank["evaluations"]]
        assert values == pytest.approx([value for _, value in alone["evaluations"]], rel=1e-4)
        assert of_rank["metrics"]["loss"] == pytest.approx(alone["metrics"]["loss"], rel=1e-4)


def overtrained(optimizer=None):
    """Targets that cannot be learnt: the evaluation is at its best early, and then gets worse."""
    noise = torch.randn(64, 1, generator=torch.Generator().manual_seed(4))
    return evaluations(
        30, data=brim.Loader((X[:64], noise), 16), epochs=30, max_steps=None, patience=2, optimizer="AdamW", lr=0.05
    )


@pytest.mark.slow
def test_patience_stops_all_ranks_at_the_same_step_with_the_best_weights(launch):
    (alone,) = launch(1, overtrained)
    assert "no better evaluation" in alone["ended"]
    first, *others = ranks = launch(4, overtrained)
    for of_rank in ranks:
        assert of_rank["steps"] == alone["steps"]
        assert of_rank["ended"] == alone["ended"]
        assert difference(of_rank, alone) <= ROUNDING
    assert all(are_the_same_bits(other, first) for other in others)
    assert len(first["losses"]) > min(first["evaluations"], key=lambda e: e[1])[0]  # went back


class Draws:
    """An evaluator that samples, as those with sampled negatives do: each rank draws other numbers."""

    monitor, higher_is_better, calls = "score", True, 0

    def evaluate(self, model):
        return {"score": float(torch.rand(()))}


def judged_by_chance():
    return train(model=net(nn.Dropout(0.5)), eval_data=Draws(), patience=1, epochs=40, max_steps=None, data=columns(64))


@pytest.mark.slow
def test_an_evaluation_that_draws_is_the_same_on_all_ranks(launch):
    outcomes = launch.outcomes(4, judged_by_chance)
    assert [outcome.error for outcome in outcomes] == [""] * 4
    assert len({outcome.value["steps"] for outcome in outcomes}) == 1
    assert len({outcome.value["metrics"]["score"] for outcome in outcomes}) == 1


def evaluated_after_fit():
    model = net(nn.BatchNorm1d(16))
    held_out = brim.Loader((X[:50], Y[:50]), 16)
    trained = train(model=model, max_steps=10, test_data=held_out, data=columns(64, drop_last=True))
    with torch.no_grad():
        model.eval()
        return {**trained, "loss": float(nn.functional.mse_loss(model(X[:50]), Y[:50]))}


def test_statistics_of_norms_are_the_same_on_all_ranks_after_a_run(launch):
    first, other = launch(2, evaluated_after_fit)
    assert are_the_same_bits(first, other)
    assert first["metrics"]["loss"] == pytest.approx(first["loss"], rel=1e-5)
    assert first["loss"] == other["loss"]


def ranking(n_users, batch_size=3):
    """Full ranking, whose users are shared out."""
    pairs = torch.randperm(n_users * 30, generator=torch.Generator().manual_seed(3))[: n_users * 10]
    known, held_out = (Interactions(p // 30, p % 30, n_users, 30) for p in (pairs[: n_users * 8], pairs[n_users * 8 :]))
    torch.manual_seed(5)
    return train(
        TrainDataLoader(known, batch_size=16, device="cpu"), BPR(n_users, 30, 8), loss_fn=None, max_steps=20,
        optimizer="AdamW", lr=1e-2, eval_data=EvalDataLoader(held_out, known, batch_size=batch_size, device="cpu"),
    )  # fmt: skip


@pytest.mark.matrix(1)
@pytest.mark.parametrize("n_users", [11, 2])
def test_a_ranking_is_that_of_one_rank(launch, n_users):
    (alone,) = launch(1, ranking, n_users=n_users)
    for of_rank in launch(4, ranking, n_users=n_users):
        assert of_rank["metrics"] == pytest.approx(alone["metrics"], rel=1e-6)
        assert difference(of_rank, alone) <= ROUNDING


class KeepsPlaces:
    """An evaluator of the user's, who calls the places of items in a ranking their ranks."""

    monitor, higher_is_better = "mean rank", False

    def __init__(self):
        self.ranks = [1, 3, 2]

    def evaluate(self, model):
        return {"mean rank": sum(self.ranks) / len(self.ranks)}


def test_an_evaluator_keeps_what_it_calls_ranks(tmp_path):
    trained = train(eval_data=KeepsPlaces(), max_steps=2, run_dir=tmp_path / "run")
    assert trained["metrics"] == {"mean rank": 2.0}
