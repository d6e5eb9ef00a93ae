import pytest
import torch
import torchmetrics
from torchmetrics.classification import (
    BinaryAccuracy,
    BinaryF1Score,
    MulticlassAccuracy,
    MulticlassAUROC,
    MulticlassAveragePrecision,
    MulticlassCohenKappa,
    MulticlassConfusionMatrix,
    MulticlassF1Score,
    MulticlassPrecision,
    MulticlassRecall,
)
from torchmetrics.regression import ConcordanceCorrCoef, MeanSquaredError, PearsonCorrCoef

from brim.engine.evaluation.metrics.same_update import updates_match


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (MulticlassAccuracy(5), MulticlassF1Score(5)),
        (MulticlassRecall(5, ignore_index=0), MulticlassPrecision(5, ignore_index=0)),
        (MulticlassRecall(5), torchmetrics.Precision("multiclass", num_classes=5, average="macro")),
        (MulticlassConfusionMatrix(5), MulticlassCohenKappa(5)),
        (MulticlassAUROC(5), MulticlassAveragePrecision(5)),
        (BinaryAccuracy(0.6), BinaryF1Score(0.6)),
        (MeanSquaredError(), MeanSquaredError(squared=False)),
        (PearsonCorrCoef(), ConcordanceCorrCoef()),
    ],
)  # fmt: skip
def test_those_that_differ_only_in_what_they_compute_in_the_end(one, other):
    assert updates_match(one, other) and updates_match(other, one)


class Own(MulticlassAccuracy):
    def update(self, preds, target):
        super().update(preds, 1 - target)


def collection():
    return torchmetrics.MetricCollection([MulticlassAccuracy(5)])


def patched():
    metric = MulticlassAccuracy(5)
    metric.update = lambda preds, target: None
    return metric


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (BinaryAccuracy(0.5), BinaryAccuracy(0.6)),  # whose first batch may well be the same
        (MulticlassAccuracy(5), MulticlassAccuracy(6)),
        (MulticlassAccuracy(5), MulticlassAccuracy(5, average="micro")),
        (MulticlassAccuracy(5), MulticlassAccuracy(5, top_k=2)),
        (MulticlassAccuracy(5), MulticlassAccuracy(5, ignore_index=0)),
        (MulticlassAUROC(5), MulticlassAUROC(5, thresholds=3)),
        (MulticlassAUROC(5, thresholds=[0.1, 0.5]), MulticlassAUROC(5, thresholds=[0.2, 0.5])),
        (MulticlassAccuracy(5), MulticlassConfusionMatrix(5)),
        (MulticlassAUROC(5), MulticlassAUROC(5, compute_on_cpu=True)),
        (MulticlassAccuracy(5), MulticlassAccuracy(5).set_dtype(torch.float64)),
        (Own(5), Own(5)),
        (Own(5), MulticlassAccuracy(5)),
        (patched(), MulticlassAccuracy(5)),
        (torchmetrics.MeanMetric(), torchmetrics.MeanMetric()),  # whose update cannot be followed
        (collection(), collection()),
        (torchmetrics.MinMaxMetric(MulticlassAccuracy(5)), torchmetrics.MinMaxMetric(MulticlassAccuracy(5))),
    ],
)  # fmt: skip
def test_those_that_may_collect_other_things(one, other):
    assert not updates_match(one, other) and not updates_match(other, one)
