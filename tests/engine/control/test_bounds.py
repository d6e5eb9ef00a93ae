"""How long an epoch is, what is kept of the best, and which weights a run leaves."""

import json
from pathlib import Path

import pytest
import torch
from helpers.callbacks import StopAt
from helpers.small_training import X, Y, net, sgd
from helpers.weights import weights
from torch import nn

import brim
from brim.engine.checkpoints.weights import load_weights
from brim.engine.trainer import run_now
from brim.errors import ConfigError

pytestmark = pytest.mark.usefixtures("own_folder")


def trainer(model, data=None, **settings):
    fixed = {"loss_fn": nn.MSELoss(), "optimizer": sgd, "device": "cpu", "threads": 1, "run_dir": "run", "epochs": 3}
    return brim.Trainer(model, brim.Loader((X, Y), batch_size=8) if data is None else data, **{**fixed, **settings})


def plain_loop(batches_of, epochs=3):
    model = net()
    optimizer = sgd(model.parameters())
    torch.manual_seed(0)
    for epoch in range(epochs):
        for x, y in batches_of(epoch):
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
    return weights(model)


def loader():
    return brim.Loader((X, Y), batch_size=8)


READY = [(X[i : i + 8], Y[i : i + 8]) for i in range(0, 40, 8)]


@pytest.mark.parametrize("ready", [False, True])
def test_an_epoch_has_the_first_batches_of_its_order(ready):
    model = net()
    result = trainer(model, READY if ready else None, limit_train_batches=2).fit()
    expected = plain_loop(lambda epoch: READY[:2] if ready else list(loader().batches(0, epoch))[:2])
    assert torch.equal(weights(model), expected) and (result.steps, result.epochs) == (6, 3)


@pytest.mark.matrix(3)
@pytest.mark.parametrize("stop", [2, 3, 4, 5])
@pytest.mark.parametrize("ready", [False, True])
def test_a_limited_epoch_resumes_to_the_bit(stop, ready):
    data = READY if ready else None
    trainer(net(), data, limit_train_batches=3, callbacks=[StopAt(stop)], checkpoint_every=1).fit()
    model = net()
    trainer(model, data, limit_train_batches=3).fit(resume="run")
    assert torch.equal(
        weights(model), plain_loop(lambda epoch: READY[:3] if ready else list(loader().batches(0, epoch))[:3])
    )


def test_a_schedule_knows_how_long_a_limited_run_is():
    made = trainer(net(), limit_train_batches=2, scheduler="linear")
    made.fit()
    assert run_now(made).state.schedule.total == 6


def test_max_steps_at_the_end_of_a_limited_epoch_ends_it():
    assert trainer(net(), limit_train_batches=2, max_steps=4).fit().epochs == 2


def test_the_same_batches_in_every_epoch(capsys):
    model = net()
    trainer(model, overfit_batches=2).fit()
    assert "data: the first 2 batches, the same ones in every epoch" in capsys.readouterr().err
    same = list(loader().batches(0, 0))[:2]
    assert torch.equal(weights(model), plain_loop(lambda epoch: same))


def test_evaluations_are_limited():
    model = net()
    made = trainer(model, eval_data=READY, limit_eval_batches=2, test_data=READY)
    result = made.fit()
    model.eval()
    with torch.no_grad():
        expected = nn.functional.mse_loss(model(X[:16]), Y[:16])
    assert result.metrics["loss"] == pytest.approx(float(expected), rel=1e-5)


class Scripted:
    """An evaluator with a list of results."""

    monitor, higher_is_better = "score", True

    def __init__(self, *scores):
        self.scores = list(scores)

    def evaluate(self, model):
        return {"score": self.scores.pop(0)}


def test_an_evaluator_of_the_users_is_not_limited_in_silence():
    with pytest.raises(ConfigError, match="evaluates by itself"):
        trainer(net(), eval_data=Scripted(1), limit_eval_batches=2).fit()


class Keeps(brim.Callback):
    def __init__(self):
        self.weights = {}

    def on_evaluate(self, trainer, metrics):
        self.weights[run_now(trainer).state.progress.step] = weights(trainer.model).clone()


def kept():
    return sorted(int(path.name[5:]) for path in Path("run/checkpoints").glob("best-*"))


@pytest.mark.parametrize("resumes", [False, True])
def test_the_weights_of_the_best_evaluations_are_kept(resumes):
    scores, keeps, model = [3.0, float("nan"), 5.0, 1.0, 4.0, 2.0], Keeps(), net()
    if resumes:
        trainer(net(), eval_data=Scripted(*scores[:3]), keep_best=2, callbacks=[keeps]).fit()
        trainer(model, eval_data=Scripted(*scores[3:]), keep_best=2, callbacks=[keeps], epochs=6).fit(resume="run")
    else:
        trainer(model, eval_data=Scripted(*scores), keep_best=2, callbacks=[keeps], epochs=6).fit()
    assert kept() == [15, 25]
    for step in kept():
        found = net()
        load_weights(found, Path(f"run/checkpoints/best-{step:09d}/model.safetensors"))
        assert torch.equal(weights(found), keeps.weights[step])
    assert torch.equal(weights(model), keeps.weights[15])


def of_best():
    """The weights that the run folder holds as the best, and the step that they are of."""
    found, best = net(), Path("run/checkpoints/best")
    load_weights(found, best / "model.safetensors")
    return weights(found), json.loads((best / "progress.json").read_text())["step"]


END = {"eval_every": "2 steps", "max_steps": 5}  # evaluated after steps 2, 4 and 5


@pytest.mark.matrix(4)
@pytest.mark.parametrize("restore", [True, False])
@pytest.mark.parametrize(
    ("scores", "best", "among"), [([1, 2, 3], 5, [4, 5]), ([1, 3, 2], 4, [4, 5]), ([2, 3, 1], 4, [2, 4])]
)
@pytest.mark.parametrize("keep", [1, 2])
def test_the_evaluation_at_the_end_is_one_as_well(scores, best, among, keep, restore):
    keeps, model = Keeps(), net()
    settings = {"keep_best": keep, "restore_best": restore, "callbacks": [keeps], **END}
    result = trainer(model, eval_data=Scripted(*scores), **settings).fit()
    found, step = of_best()
    assert step == best and torch.equal(found, keeps.weights[best]) and kept() == (among if keep == 2 else [])
    assert torch.equal(weights(model), keeps.weights[best if restore else 5])
    assert result.metrics["score"] == (3 if restore else scores[-1])


@pytest.mark.matrix(2)
@pytest.mark.parametrize("later", [[0.5, 0.4], [9.0, 0.4]])
@pytest.mark.parametrize("before", [[1, 2, 3], [1, 3, 2]])
def test_a_run_that_is_extended_has_the_best_of_one_that_never_ended(before, later):
    settings = {"keep_best": 2, "eval_every": "2 steps", "run_dir": "run"}
    trainer(whole := net(), eval_data=Scripted(*before[:2], *later), max_steps=8, **settings).fit()
    of_whole = (*of_best(), kept())
    Path("run").rename("whole")
    trainer(net(), eval_data=Scripted(*before), max_steps=5, **settings).fit()
    trainer(net(), eval_data=Scripted(before[-1]), max_steps=5, **settings).fit(resume="run")  # not changed by that
    model = net()
    result = trainer(model, eval_data=Scripted(*later), max_steps=8, **settings).fit(resume="run")
    found, step = of_best()
    assert torch.equal(found, of_whole[0]) and (step, kept()) == of_whole[1:]
    assert torch.equal(weights(model), weights(whole)) and result.metrics["score"] == max(*before[:2], *later)
    assert not list(Path("run/checkpoints").glob(".*"))


def test_an_evaluation_that_only_the_end_asked_for_is_the_best_until_the_run_goes_on():
    settings = {"eval_every": "9 steps"}
    trainer(model := net(), eval_data=Scripted(2), max_steps=5, **settings).fit()
    found, step = of_best()
    assert step == 5 and torch.equal(found, weights(model))
    trainer(model := net(), eval_data=Scripted(1), max_steps=9, **settings).fit(resume="run")
    found, step = of_best()
    assert step == 9 and torch.equal(found, weights(model))


def test_one_best_is_kept_as_before():
    trainer(net(), eval_data=Scripted(1, 2, 3)).fit()
    assert kept() == [] and Path("run/checkpoints/best").exists()


@pytest.mark.parametrize("every", [1, 2])
def test_the_last_weights_stay_where_the_best_are_not_wanted_back(every):
    model = net()
    result = trainer(model, eval_data=Scripted(3, 2, 1), restore_best=False, eval_every=every).fit()
    assert torch.equal(weights(model), plain_loop(lambda epoch: loader().batches(0, epoch)))
    assert result.metrics == {"score": 1.0 if every == 1 else 2.0}
    found = net()
    load_weights(found, Path("run/checkpoints/final/model.safetensors"))
    assert torch.equal(weights(found), weights(model))


def test_two_lengths_of_an_epoch_are_refused():
    with pytest.raises(ConfigError, match="pass one of them"):
        trainer(net(), limit_train_batches=2, overfit_batches=2)


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True])
def test_a_limit_is_a_whole_number(wrong):
    for name in ("limit_train_batches", "limit_eval_batches", "overfit_batches", "keep_best"):
        with pytest.raises(ConfigError, match=name):
            trainer(net(), **{name: wrong})


def test_progress_of_elsewhere_is_looked_at():
    from brim.engine.run_state.progress import Progress

    for wrong in ({}, [[1]], [["a", 2]], [[1, 2, 3]], 5):
        with pytest.raises(ValueError, match="no run comes to"):
            Progress.from_json(json.loads(json.dumps({**Progress().to_json(), "ranked": wrong})))
