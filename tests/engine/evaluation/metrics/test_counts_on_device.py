import pytest
import torch
from torchmetrics.classification import (
    BinaryPrecisionRecallCurve,
    MulticlassAccuracy,
    MulticlassAUROC,
    MulticlassConfusionMatrix,
    MultilabelConfusionMatrix,
)

from brim.engine.evaluation.metrics.counts_on_device import CountsOnDevice


def drawn(classes, *shape):
    return torch.randint(classes, shape, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("numbers", [drawn(5, 30), drawn(2, 30).bool().to(torch.uint8), torch.zeros(0).long()])
def test_it_counts_as_torch_does(numbers):
    with CountsOnDevice() as counts:
        found = torch.bincount(numbers, minlength=5)
    assert torch.equal(found, torch.bincount(numbers, minlength=5)) and found.dtype == torch.int64
    assert counts.are_complete


@pytest.mark.parametrize("beyond", [-1, 5, 1000])
def test_numbers_beyond_are_noted(beyond):
    with CountsOnDevice() as counts:
        torch.bincount(torch.tensor([1, 2]), minlength=5)
        torch.bincount(torch.tensor([1, beyond]), minlength=5)
        torch.bincount(torch.tensor([1, 2]), minlength=5)
    assert not counts.are_complete


def test_other_calls_are_torchs_own():
    numbers = torch.tensor([1, 3])
    with CountsOnDevice() as counts:
        assert len(torch.bincount(numbers)) == 4
        assert torch.bincount(numbers, torch.tensor([0.5, 1.0]), 5)[1] == 0.5
        assert torch.bincount(numbers, weights=torch.tensor([0.5, 1.0]), minlength=5)[3] == 1
    assert counts.are_complete


SCORES = torch.randn(20, 4, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    ("metric", "scores", "target"),
    [
        (MulticlassAccuracy(4), SCORES, drawn(4, 20)),
        (MulticlassAccuracy(4, ignore_index=-1), SCORES, drawn(5, 20) - 1),
        (MulticlassConfusionMatrix(4), SCORES, drawn(4, 20)),
        (MulticlassAUROC(4, thresholds=7), SCORES, drawn(4, 20)),
        (BinaryPrecisionRecallCurve(thresholds=7), SCORES[:, 0].sigmoid(), drawn(2, 20)),
        (MultilabelConfusionMatrix(4), SCORES.sigmoid(), drawn(2, 20, 4)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_metrics_are_what_they_are_without_it(metric, scores, target):
    metric.update(scores, target)
    plain = metric.compute()
    metric.reset()
    with CountsOnDevice() as counts:
        metric.update(scores, target)
    torch.testing.assert_close(metric.compute(), plain, rtol=0, atol=0, equal_nan=True)
    assert counts._beyond is not None and counts.are_complete  # it was used
