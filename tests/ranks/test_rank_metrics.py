"""Metrics and logged numbers over ranks: those of one rank, also where a rank has no sample."""

import json
from pathlib import Path

import pytest
import torch
import torchmetrics
from torch import nn
from torchmetrics.classification import (
    MulticlassAUROC,
    MulticlassAveragePrecision,
    MulticlassF1Score,
    MulticlassPrecision,
    MulticlassRecall,
)

import brim
from brim.engine.components.loss import Loss

X = torch.randn(37, 5, generator=torch.Generator().manual_seed(1))
Y = torch.randint(0, 3, (37,), generator=torch.Generator().manual_seed(2))


def loss(model, batch):
    outputs = model(batch[0])
    said = {"size": batch[0][:, 0].mean(), "tokens": Loss(batch[0].sum(), len(batch[0]) * 2)}
    return {"loss": nn.functional.cross_entropy(outputs, batch[1]), **said}


def probabilities(outputs, batch):
    return outputs.softmax(1), batch[1]


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1)


def judged(samples, batch_size, strategy="auto"):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3))
    metrics = {
        "accuracy": "accuracy", "f1": "f1", "hits": lambda outputs, batch: outputs.argmax(1) == batch[1],
        "several": torchmetrics.MetricCollection([MulticlassF1Score(3)]),
        "recall": MulticlassRecall(3), "precision": MulticlassPrecision(3),  # one collects for both
        "auc": (MulticlassAUROC(3), probabilities), "ap": (MulticlassAveragePrecision(3), probabilities),
    }  # fmt: skip
    held_out = {"few": brim.Loader((X[:samples], Y[:samples]), batch_size), "all": brim.Loader((X, Y), batch_size)}
    result = brim.Trainer(
        model, brim.Loader((X, Y), batch_size=8), held_out, loss_fn=loss, device="cpu", run_dir="run", max_steps=3,
        metrics=metrics, monitor="all/accuracy", optimizer=sgd, strategy=strategy, sliceable=True, log_every=2,
    ).fit()  # fmt: skip
    lines = [json.loads(line) for line in Path("run", "metrics.jsonl").read_text().splitlines()]
    logged = {
        f"step {line['step']} {name}": line[name] for line in lines for name in ("size", "tokens") if name in line
    }
    return {**result.metrics, **logged}


@pytest.mark.parametrize(("samples", "batch_size"), [(1, 16), pytest.param(37, 5, marks=pytest.mark.slow)])
def test_metrics_are_those_of_one_rank(launch, samples, batch_size):
    (alone,) = launch(1, judged, samples=samples, batch_size=batch_size)
    assert sum(name.startswith("step") for name in alone) == 6  # of steps 1, 2 and 3
    for of_rank in launch(3, judged, samples=samples, batch_size=batch_size):
        assert of_rank == pytest.approx(alone, rel=1e-4, abs=1e-6, nan_ok=True)


@pytest.mark.slow
def test_metrics_of_a_sharded_model_are_those_of_one_rank(launch):
    (alone,) = launch(1, judged, samples=2, batch_size=16)
    for of_rank in launch(3, judged, samples=2, batch_size=16, strategy="fsdp"):
        assert of_rank == pytest.approx(alone, rel=1e-4, abs=1e-6, nan_ok=True)
