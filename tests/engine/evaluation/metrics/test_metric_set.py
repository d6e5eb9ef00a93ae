import math

import pytest
import torch
import torchmetrics
from helpers.faults import Above, Gate
from torch import nn
from torchmetrics.classification import (
    MulticlassAccuracy,
    MulticlassAUROC,
    MulticlassAveragePrecision,
    MulticlassF1Score,
    MulticlassStatScores,
)

import brim
from brim.data import Loader
from brim.engine.components.loss import Loss, loss_of
from brim.engine.components.precision import Precision
from brim.engine.distributed.ranks import Ranks
from brim.engine.evaluation.evaluation import MeanLoss, evaluating
from brim.engine.evaluation.metrics.metric_set import make_metrics
from brim.engine.numbers.pass_notes import PassNotes
from brim.engine.trainer import run_now
from brim.errors import ConfigError

FULL = Precision("32", torch.device("cpu"))
X = torch.randn(23, 5, generator=torch.Generator().manual_seed(1))
Y = torch.randint(0, 3, (23,), generator=torch.Generator().manual_seed(2))


def hits(outputs, batch):
    return outputs.argmax(1) == batch[1]


def evaluate(model, metrics, loss_fn=None, data=None, sliceable=None):
    notes = PassNotes()
    compute = loss_of(model, loss_fn or nn.CrossEntropyLoss(), notes)
    data = Loader((X, Y), batch_size=8) if data is None else data
    evaluator = MeanLoss(data, compute, FULL, sliceable=sliceable, metrics=make_metrics(metrics), notes=notes)
    with evaluating(model):
        found, again = evaluator.evaluate(model), evaluator.evaluate(model)
    assert found == again
    return found


def perplexity(outputs, batch):
    return 3.0


def net(*more):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 3), *more)


@pytest.mark.parametrize(
    ("given", "names"),
    [
        (None, []), ("accuracy", ["accuracy"]), (["f1", "mse"], ["f1", "mse"]), (hits, ["hits"]), ([hits], ["hits"]),
        ({"top": "accuracy", "mine": hits}, ["top", "mine"]), ({"ppl": "perplexity"}, ["ppl"]),
        (MulticlassAccuracy(3), ["MulticlassAccuracy"]), ({"a": MulticlassAccuracy(3)}, ["a"]),
        ({"a": (MulticlassAccuracy(3), lambda outputs, batch: (outputs, batch[1]))}, ["a"]),
        (torchmetrics.MetricCollection({"x": MulticlassAccuracy(3)}), ["x"]),
    ],
)  # fmt: skip
def test_metrics_are_taken_in_every_form(given, names):
    assert list(make_metrics(given).directions) == names


@pytest.mark.parametrize(
    ("given", "part"),
    [
        ("acuracy", "did you mean 'accuracy'"), (5, "must be names"), ({"a": 5}, "holds 5"),
        ([MulticlassAccuracy], "class"), ({"loss": "accuracy"}, "another name"), (["accuracy", {"a": 1}], "holds"),
        ([hits, hits], "two of the name"),
        (["perplexity", "perplexity"], "two of the name"), (["perplexity", perplexity], "two of the name"),
        ({"a": (hits, hits)}, "holds"),
    ],
)  # fmt: skip
def test_what_cannot_be_a_metric_is_refused_in_a_sentence(given, part):
    with pytest.raises(ConfigError, match=part):
        make_metrics(given)


def test_all_kinds_agree_with_each_other_and_with_the_plain_loop():
    model = net()
    given = {
        "name": "accuracy",
        "function": hits,
        "object": MulticlassAccuracy(3, average="micro"),
        "f1": MulticlassF1Score(3),
    }
    found = evaluate(model, given)
    with torch.no_grad():
        outputs = model(X)
    exact = float((outputs.argmax(1) == Y).double().mean())
    assert found["name"] == found["function"] == pytest.approx(exact) == pytest.approx(found["object"])
    plain = MulticlassF1Score(3)
    plain.update(outputs, Y)
    assert found["f1"] == pytest.approx(float(plain.compute()))
    assert found["loss"] == pytest.approx(float(nn.functional.cross_entropy(outputs, Y)), rel=1e-6)


@pytest.mark.parametrize("most", [1, 2, 3, 7])
def test_slices_for_lack_of_memory_change_no_metric(most):
    several = torchmetrics.MetricCollection([MulticlassAccuracy(3), MulticlassF1Score(3)])
    lists = MulticlassAUROC(3), lambda outputs, batch: (outputs.softmax(1), batch[1])  # which keeps all scores
    given = ["accuracy", "f1", hits, "perplexity", several, lists]
    metrics = {f"m{number}": one for number, one in enumerate(given)}
    whole = evaluate(net(), metrics)
    sliced = evaluate(net(Gate(Above(most), training=None)), metrics, sliceable=True)
    assert sliced == pytest.approx(whole, rel=1e-6)


def test_metrics_that_collect_the_same_collect_once_and_are_what_each_is_alone(monkeypatch):
    calls = []
    plain = MulticlassStatScores.update
    monkeypatch.setattr(MulticlassStatScores, "update", lambda *args: calls.append(args[0]) or plain(*args))
    made = {"accuracy": MulticlassAccuracy(3), "f1": MulticlassF1Score(3), "top2": MulticlassAccuracy(3, top_k=2)}
    made |= {"auc": MulticlassAUROC(3), "ap": MulticlassAveragePrecision(3)}
    found = evaluate(net(Gate(Above(3), training=None)), made, sliceable=True)
    assert len({id(metric) for metric in calls}) == 2
    monkeypatch.undo()
    for name, metric in made.items():
        fresh = type(metric)(3, top_k=2) if name == "top2" else type(metric)(3)
        assert evaluate(net(), {name: fresh})[name] == pytest.approx(found[name], rel=1e-6)


def test_memory_that_runs_out_in_a_metric_takes_nothing_in_twice():
    fails = Above(4)

    def hungry(outputs, batch):
        if fails(len(outputs)):
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return hits(outputs, batch)

    metrics = {"object": MulticlassAccuracy(3, average="micro"), "name": "accuracy", "hungry": hungry}
    found = evaluate(net(), metrics, sliceable=True)
    assert found["object"] == pytest.approx(found["name"]) == pytest.approx(found["hungry"])
    assert found["name"] == pytest.approx(evaluate(net(), "accuracy")["accuracy"])


def test_the_model_is_run_once_for_a_batch():
    class Counts(nn.Module):
        calls = 0

        def forward(self, x):
            self.calls += 1
            return x

    model = net(Counts())
    evaluate(model, ["accuracy", "f1", hits])
    assert model[-1].calls == 2 * 3


@pytest.mark.parametrize("form", ["function", "method", "emptied"])
def test_outputs_are_those_of_the_pass_that_gave_the_loss(form):
    model, metrics = net(), {"accuracy": hits}

    def loss(model, batch):
        x, y = (batch.pop(0), batch.pop(0)) if form == "emptied" else batch
        return nn.functional.cross_entropy(model(x), y)

    loss_fn, data = loss, Loader((X, Y), batch_size=8)
    if form == "emptied":
        data = [[x, y] for x, y in zip(X.split(8), Y.split(8), strict=True)]
    expected = evaluate(model, "accuracy")["accuracy"]
    if form == "method":
        model.calculate_loss = lambda batch: loss(model, batch)
        compute = loss_of(model, None)
        with evaluating(model):
            found = MeanLoss(data, compute, FULL, metrics=make_metrics(metrics), notes=compute.notes).evaluate(model)
    else:
        found = evaluate(model, metrics, loss_fn, data)
    assert found["accuracy"] == pytest.approx(expected)


def test_a_loss_that_calls_the_model_twice_is_asked_for_the_outputs():
    def twice(model, batch):
        return nn.functional.cross_entropy(model(batch[0]) + model(batch[0]), batch[1])

    def says(model, batch):
        outputs = model(batch[0]) + model(batch[0])
        return {"loss": nn.functional.cross_entropy(outputs, batch[1]), "outputs": outputs}

    with pytest.raises(ConfigError, match="calls the model 2 times: let it return"):
        evaluate(net(), hits, twice)
    assert evaluate(net(), hits, says)["hits"] == pytest.approx(evaluate(net(), "accuracy")["accuracy"])
    with pytest.raises(ConfigError, match="does not call the model"):
        evaluate(net(), hits, lambda model, batch: model[0](batch[0]).mean())


def test_what_a_loss_says_beside_itself_is_a_metric_weighted_as_the_loss():
    def loss(model, batch):
        return {"loss": model(batch[0]).square().mean(), "size": batch[0][:, 0].mean(), "sum": Loss(batch[0].sum(), 1)}

    found = evaluate(net(), None, loss)
    assert found["size"] == pytest.approx(float(X[:, 0].mean()), rel=1e-5)
    assert found["sum"] == pytest.approx(float(X.sum()) / 3, rel=1e-5)


def test_perplexity_is_that_of_the_mean_loss():
    found = evaluate(net(), "perplexity")
    assert found["perplexity"] == math.exp(found["loss"])


@pytest.mark.parametrize("compile", [False, "eager"])
def test_the_trainer_hands_its_metrics_to_evaluations_and_takes_others_for_one(tmp_path, compile):
    run = brim.Trainer(
        model := net(), Loader((X, Y), batch_size=8), (X, Y), loss_fn=nn.CrossEntropyLoss(), device="cpu", threads=1,
        metrics={"accuracy": MulticlassAccuracy(3, average="micro")}, monitor="accuracy", run_dir=tmp_path / "run",
        epochs=3, compile=compile,
    )  # fmt: skip
    metrics = run.fit().metrics
    assert run_now(run).evaluations.monitor.higher_is_better
    with torch.no_grad():
        exact = float((model(X).argmax(1) == Y).double().mean())
    assert metrics["accuracy"] == pytest.approx(exact) == pytest.approx(run.evaluate()["accuracy"])
    assert list(run.evaluate((X[:5], Y[:5]), metrics=hits)) == ["loss", "hits"]


class Own:
    monitor, higher_is_better = "score", True

    def evaluate(self, model):
        return {"score": 1.0}


def test_metrics_that_would_have_no_effect_are_refused():
    with pytest.raises(ConfigError, match="Own evaluates the model by itself"):
        brim.Trainer(net(), (X, Y), Own(), loss_fn=nn.CrossEntropyLoss(), device="cpu", metrics="accuracy")
    run = brim.Trainer(net(), (X, Y), Own(), loss_fn=nn.CrossEntropyLoss(), device="cpu")
    with pytest.raises(ConfigError, match="no effect"):
        run.evaluate(Own(), metrics="accuracy")
    with pytest.raises(ConfigError, match="there is no eval_data"):
        brim.Trainer(net(), (X, Y), loss_fn=nn.CrossEntropyLoss(), device="cpu", monitor="accuracy").fit()


def test_perplexity_by_two_names_has_both():
    found = make_metrics({"a": "perplexity", "b": "perplexity"})
    assert found.results(Ranks(), 0.0) == {"a": 1.0, "b": 1.0}
