"""Taking a batch in does not make the host wait for the GPU: it could not be ahead of it otherwise."""

import pytest
import torch
from torch import nn

import brim
from brim.engine.distributed.ranks import Ranks
from brim.engine.evaluation.metrics.metric_set import make_metrics
from brim.engine.evaluation.metrics.seen_batch import SeenBatch

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
GPU = torch.device("cuda", 0)


def of_classes(device):
    generator = torch.Generator().manual_seed(0)
    scores, target = torch.randn(40, 7, generator=generator), torch.randint(7, (40,), generator=generator)
    target[::9] = -100
    return scores.to(device), target.to(device)


def of_numbers(device):
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randn(40, 3, generator=generator).to(device) for _ in range(2))


def found(metrics, outputs, target, device):
    """What the metrics come to over two parts; on a GPU nothing may wait while they are taken in."""
    made = make_metrics(metrics)
    made.start(device)
    halves = [(outputs[half], target[half]) for half in (slice(25), slice(25, None))]
    if device.type == "cuda":
        torch.cuda.set_sync_debug_mode("error")
    try:
        for scores, true in halves:
            seen = SeenBatch(nn.Identity(), None, scores, (scores, true), len(true))
            made.update(seen, [("kl", 0.5), ("beta", true.float().mean())], len(true))
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return made.results(Ranks(), 0.5)


@pytest.mark.parametrize("name", ["accuracy", "top5_accuracy", "f1", "precision", "recall"])
def test_names_of_classes(name):
    assert found(name, *of_classes(GPU), GPU) == pytest.approx(found(name, *of_classes("cpu"), torch.device("cpu")))


@pytest.mark.parametrize("name", ["mse", "rmse", "mae", "r2"])
def test_names_of_numbers(name):
    assert found(name, *of_numbers(GPU), GPU) == pytest.approx(found(name, *of_numbers("cpu"), torch.device("cpu")))


@pytest.mark.parametrize(
    "function",
    [
        lambda outputs, batch: (outputs - batch[1]).square().mean(),
        lambda outputs, batch: (outputs - batch[1]).square(),
        lambda outputs, batch: brim.Loss((outputs - batch[1]).square().sum(), 120),
    ],
    ids=["mean", "each", "sum"],
)
def test_functions(function):
    metrics = {"mine": function}
    assert found(metrics, *of_numbers(GPU), GPU) == pytest.approx(
        found(metrics, *of_numbers("cpu"), torch.device("cpu"))
    )


def test_objects_of_torchmetrics():
    classification = pytest.importorskip("torchmetrics.classification", reason="torchmetrics is not installed")
    kinds = ("Accuracy", "F1Score", "ConfusionMatrix", "CohenKappa")
    metrics = {kind: getattr(classification, f"Multiclass{kind}")(7, validate_args=False) for kind in kinds}
    scores, target = of_classes("cpu")
    target = target.clamp(0)
    assert found(metrics, scores.to(GPU), target.to(GPU), GPU) == pytest.approx(
        found(metrics, scores, target, torch.device("cpu"))
    )
