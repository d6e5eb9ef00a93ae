import pytest
import torch
import torchmetrics
from helpers.faults import ran_out
from torch import nn
from torchmetrics.classification import (
    BinaryAUROC,
    MulticlassAccuracy,
    MulticlassAUROC,
    MulticlassConfusionMatrix,
    MulticlassF1Score,
    MultilabelAUROC,
)

from brim.engine.distributed.ranks import Ranks
from brim.engine.evaluation.metrics.counts_on_device import CountsOnDevice
from brim.engine.evaluation.metrics.seen_batch import SeenBatch
from brim.engine.evaluation.metrics.torchmetrics_object import TorchmetricsObject, is_torchmetrics
from brim.errors import ConfigError

CPU = torch.device("cpu")
SCORES = torch.randn(20, 4, generator=torch.Generator().manual_seed(1))
TARGET = torch.randint(0, 4, (20,), generator=torch.Generator().manual_seed(2))


def seen(start, stop):
    return SeenBatch(nn.Identity(), None, SCORES[start:stop], (None, TARGET[start:stop]), stop - start)


def results(made):
    made.start(CPU)
    for start, stop in ((0, 7), (7, 8), (8, 20)):
        made.update(seen(start, stop))
    return made.results(Ranks())


def test_only_objects_of_torchmetrics_are_taken_for_such():
    class Own(torchmetrics.Metric):
        def update(self): ...

        def compute(self): ...

    assert is_torchmetrics(Own()) and is_torchmetrics(torchmetrics.MetricCollection([MulticlassAccuracy(4)]))
    assert not is_torchmetrics(nn.Linear(1, 1)) and not is_torchmetrics(len)


def test_a_metric_gives_what_it_gives_in_a_plain_loop():
    plain = MulticlassF1Score(4)
    plain.update(SCORES, TARGET)
    made = TorchmetricsObject("f1", MulticlassF1Score(4))
    assert results(made) == results(made) == {"f1": pytest.approx(float(plain.compute()))}
    assert made.higher_is_better == {"f1": True}


@pytest.mark.parametrize("name", ["", "all"])
def test_a_collection_has_the_names_that_it_gives(name):
    made = TorchmetricsObject(
        name, torchmetrics.MetricCollection([MulticlassAccuracy(4), MulticlassF1Score(4)], prefix="v_")
    )
    found, prefix = results(made), f"{name}/v_" if name else "v_"
    assert (
        sorted(found) == sorted(made.higher_is_better) == [f"{prefix}MulticlassAccuracy", f"{prefix}MulticlassF1Score"]
    )


def test_arguments_are_checked_in_the_first_batch_only_and_again_in_the_next_evaluation():
    made = TorchmetricsObject(
        "a", torchmetrics.MetricCollection({"f": MulticlassF1Score(4), "b": MulticlassAccuracy(4)})
    )
    parts = [part for part in made.metric.modules() if hasattr(part, "validate_args")]
    made.start(CPU)
    assert len(parts) == 2 and all(part.validate_args for part in parts)
    made.update(seen(0, 3))
    assert not any(part.validate_args for part in parts)
    made.end()
    assert all(part.validate_args for part in parts)


@pytest.mark.parametrize(
    "metric", [lambda: MulticlassF1Score(4), lambda: torchmetrics.CatMetric()], ids=["sums", "lists"]
)
def test_an_update_that_fails_leaves_the_state_of_before(metric):
    collects = isinstance(metric(), torchmetrics.CatMetric)
    made = TorchmetricsObject("m", metric(), (lambda outputs, batch: (outputs[:, 0],)) if collects else None)
    made.start(CPU)
    made.update(seen(0, 7))
    with pytest.raises(torch.OutOfMemoryError), made.unchanged_on_error():
        made.update(seen(7, 20))
        raise ran_out()
    made.update(seen(7, 20))
    again = made.metric.compute()
    made.metric.reset()
    made.update(seen(0, 20))
    assert torch.equal(again, made.metric.compute())


def test_values_by_class_have_a_name_each_and_a_matrix_is_left_out_with_a_word():
    assert list(results(TorchmetricsObject("f1", MulticlassF1Score(4, average=None)))) == [f"f1/{n}" for n in range(4)]
    said = []
    assert results(TorchmetricsObject("matrix", MulticlassConfusionMatrix(4), tell=said.append)) == {}
    assert "'matrix' is a tensor of shape (4, 4)" in said[0]


def test_a_function_beside_it_makes_its_arguments():
    made = TorchmetricsObject("auc", BinaryAUROC(), lambda outputs, batch: (outputs[:, 0].sigmoid(), batch[1] > 1))
    plain = BinaryAUROC()
    plain.update(SCORES[:, 0].sigmoid(), TARGET > 1)
    assert results(made) == {"auc": pytest.approx(float(plain.compute()))}
    made.inputs = lambda outputs, batch: outputs
    with pytest.raises(ConfigError, match="must return a tuple"):
        results(made)


@pytest.mark.parametrize("function", [torch.sigmoid, lambda scores: scores])
def test_logits_that_torchmetrics_tells_by_their_values_are_warned_about_once(function):
    said = []
    made = TorchmetricsObject(
        "auc", BinaryAUROC(), lambda outputs, batch: (function(outputs[:, 0]), batch[1] > 1), said.append
    )
    results(made), results(made)
    assert ["batch by batch" in sentence for sentence in said] == ([] if function is torch.sigmoid else [True])


@pytest.mark.parametrize(
    ("metric", "scores", "call"),
    [
        (BinaryAUROC(), SCORES[:, :1], "sigmoid()"),
        (BinaryAUROC(), SCORES[:, 0], "sigmoid()"),
        (MultilabelAUROC(4), SCORES, "sigmoid()"),
        (MulticlassAUROC(4), SCORES, "softmax(1)"),
    ],
)
def test_the_warning_says_what_makes_probabilities_of_these_logits(metric, scores, call):
    said, target = [], {1: TARGET > 1, 4: torch.nn.functional.one_hot(TARGET, 4)}
    wanted = TARGET if isinstance(metric, MulticlassAUROC) else target[scores[0].numel()].reshape(scores.shape)
    made = TorchmetricsObject("auc", metric, lambda outputs, batch: (scores, wanted.long()), said.append)
    made.start(CPU)
    made.update(seen(0, 20))
    assert [f"(outputs.{call}, batch[1])" in sentence for sentence in said] == [True]


def test_nothing_is_kept_after_an_evaluation():
    made = TorchmetricsObject("auc", BinaryAUROC(), lambda outputs, batch: (outputs[:, 0], (batch[1] > 1).long()))
    results(made)
    made.end()
    assert made.metric.preds == []


@pytest.mark.parametrize("metric", [MulticlassAccuracy(3), MulticlassAccuracy(9), torchmetrics.MeanSquaredError()])
def test_what_a_metric_refuses_is_told_with_what_it_was_given(metric):
    made = TorchmetricsObject("own", metric)
    made.start(CPU)
    given = r"'own' cannot take torch.float32 of shape \(20, 4\) and torch.int64 of shape \(20,\)"
    with pytest.raises(ConfigError, match=given) as told:
        made.update(seen(0, 20))
    assert f"make {type(metric).__name__} for" in str(told.value) and told.value.__cause__ is not None


def test_what_it_finds_out_when_it_computes_is_told_too():
    with pytest.raises(ConfigError, match=r"'own' cannot be computed: index .* make BinaryAUROC for"):
        results(TorchmetricsObject("own", BinaryAUROC()))


def test_labels_beyond_the_classes_are_told_where_counting_does_not_wait_to_see_them():
    made = TorchmetricsObject("f1", MulticlassF1Score(4))
    made.start(CPU)
    made._counts = CountsOnDevice()  # as on a GPU
    made.update(seen(0, 7))
    made.update(SeenBatch(nn.Identity(), None, SCORES[:2], (None, torch.tensor([1, 4])), 2))
    with pytest.raises(ConfigError, match="the metric 'f1' cannot count labels or predictions beyond its classes"):
        made.results(Ranks())
    made.start(CPU)
    made._counts = CountsOnDevice()
    made.update(seen(0, 7))
    assert made.results(Ranks()).keys() == {"f1"}
