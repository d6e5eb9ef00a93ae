import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import brim
from brim.engine.components.precision import Precision
from brim.engine.distributed.ranks import Ranks
from brim.engine.evaluation.evaluation import as_evaluator
from brim.engine.evaluation.evaluation_sets import EvaluationSets, drop_graphs, mean_losses, named_sets
from brim.engine.trainer import run_now
from brim.errors import ConfigError

X, Y = torch.randn(7, 2), torch.randn(7, 1)


@pytest.mark.parametrize(
    "one", [(X, Y), [(X, Y)], TensorDataset(X, Y), brim.Loader((X, Y), batch_size=3), {"x": X, "y": Y}], ids=type
)
def test_a_dict_of_data_is_several_sets(one):
    assert named_sets({"clean": one, "noisy": one}) == {"clean": one, "noisy": one}


@pytest.mark.parametrize(
    "data",
    [None, (X, Y), [], {}, {"x": X, "labels": Y}, {"x": np.ones(3), "y": np.ones(3)}, {"x": [1, 2], "y": [3, 4]}],
    ids=["none", "pair", "no-batches", "no-sets", "tensors", "arrays", "lists"],
)
def test_columns_and_everything_else_are_one(data):
    assert named_sets(data) is None


@pytest.mark.parametrize("name", ["", "a/b", 3])
def test_a_name_that_could_not_be_read_again_is_refused(name):
    with pytest.raises(ConfigError, match="called by a text without '/'"):
        named_sets({name: (X, Y)})


class Counting:
    """Evaluates in batches of a size of its own, of which only one fits."""

    monitor, higher_is_better = "score", True

    def __init__(self):
        self.batch_size = 8
        self.sizes = []

    def evaluate(self, model):
        self.sizes.append(self.batch_size)
        if self.batch_size > 2:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return {"score": 1.0}


def test_each_set_has_a_size_of_its_own():
    small, other = Counting(), Counting()
    sets = EvaluationSets({"small": small, "other": other}, Ranks())
    assert sets.evaluate(nn.Linear(1, 1)) == {"small/score": 1.0, "other/score": 1.0}
    assert sets.evaluate(nn.Linear(1, 1)) == {"small/score": 1.0, "other/score": 1.0}
    assert small.sizes == other.sizes == [8, 4, 2, 2]
    assert mean_losses(sets) == []


def test_the_first_set_decides_unless_another_is_monitored(tmp_path):
    def fit(**settings):
        run = brim.Trainer(
            nn.Linear(2, 1), (X, Y), {"near": (X, Y), "far": (X, Y + 100)}, loss_fn=nn.MSELoss(), device="cpu",
            threads=1, run_dir=tmp_path / str(len(settings)), metrics="mae", **settings,
        )  # fmt: skip
        return run.fit().metrics, run_now(run).evaluations.monitor.name, run

    metrics, decides, run = fit()
    assert list(metrics) == ["near/loss", "near/mae", "far/loss", "far/mae"] and decides == "near/loss"
    alone = run.evaluate((X, Y + 100))
    assert {f"far/{name}": value for name, value in alone.items()} == {n: metrics[n] for n in ("far/loss", "far/mae")}
    assert fit(monitor="far/mae")[1] == "far/mae"
    with pytest.raises(ConfigError, match="did you mean 'near/mae'"):
        fit(monitor="near/mea", mode="min")


def test_sets_of_different_lengths_are_evaluated_each_by_itself(tmp_path):
    sets = {"all": (X, Y), "some": (X[:3], Y[:3])}
    run = brim.Trainer(nn.Linear(2, 1), (X, Y), sets, loss_fn=nn.MSELoss(), device="cpu", run_dir=tmp_path / "run")
    metrics = run.fit().metrics
    assert metrics == {f"{name}/loss": run.evaluate(data)["loss"] for name, data in sets.items()}


def test_graphs_of_all_evaluators_are_given_back():
    class Captured:
        dropped = 0

        def drop(self):
            self.dropped += 1

    sets = EvaluationSets(
        {name: as_evaluator([torch.ones(2)], None, Precision("32", torch.device("cpu"))) for name in "ab"}, Ranks()
    )
    captured = Captured()
    sets.sets["a"].captured = captured
    drop_graphs(sets)
    drop_graphs(sets.sets["a"])
    drop_graphs(None)
    assert captured.dropped == 2
