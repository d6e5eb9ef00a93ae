"""What is logged in captured steps is what eager steps log, and metrics on a GPU are those of the CPU."""

import json

import pytest
import torch
from torch import nn
from torchmetrics.classification import MulticlassAccuracy

import brim
from brim.engine.trainer import run_now

pytestmark = pytest.mark.gpu
X = torch.randn(512, 16, generator=torch.Generator().manual_seed(1))
Y = torch.randint(0, 5, (512,), generator=torch.Generator().manual_seed(2))


def fit(tmp_path, name, loss_fn, **settings):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 5))
    settings = {"device": "cuda", "use_multi_gpu": False, "epochs": 4, "log_every": 1, **settings}
    run = brim.Trainer(model, brim.Loader((X, Y), batch_size=32), loss_fn=loss_fn, run_dir=tmp_path / name, **settings)
    result = run.fit()
    lines = [json.loads(line) for line in (result.run / "metrics.jsonl").read_text().splitlines()]
    return run, lines, result


def returned(model, batch):
    outputs = model(batch[0])
    loss = nn.functional.cross_entropy(outputs, batch[1])
    sure = brim.Loss(outputs.softmax(1).amax(1).sum(), len(outputs))
    return {"loss": loss, "x": batch[0].mean(), "weight": model[0].weight[0, 0], "sure": sure}


@pytest.mark.parametrize("settings", [{}, {"micro_batch": 8}, {"gradient_accumulation_steps": 2}], ids=str)
def test_captured_steps_log_what_eager_steps_log(tmp_path, settings):
    _, eager, _ = fit(tmp_path, "eager", returned, capture="off", **settings)
    run, captured, _ = fit(tmp_path, "captured", returned, capture="require", **settings)
    assert run.captured.replays > 10
    for name in ("x", "weight", "sure"):
        values = [line[name] for line in captured if name in line]
        assert values == pytest.approx([line[name] for line in eager if name in line], rel=1e-4, abs=1e-5)
        assert len(set(values)) > 10


def test_a_number_of_the_host_is_not_frozen_in_a_graph(tmp_path):
    def loss(model, batch):
        return {"loss": nn.functional.cross_entropy(model(batch[0]), batch[1]), "host": 0.5}

    with pytest.raises(brim.BrimError, match="a number that the loss logs is the host's"):
        fit(tmp_path, "run", loss, capture="require")
    run, lines, _ = fit(tmp_path, "auto", loss)
    assert run.captured.replays == 0 and all(line["host"] == 0.5 for line in lines if "loss" in line)


def test_metrics_on_a_gpu_are_those_of_the_cpu(tmp_path):
    metrics = {"name": "accuracy", "f1": "f1", "object": MulticlassAccuracy(5, average="micro")}
    _, _, result = fit(tmp_path, "run", nn.CrossEntropyLoss(), eval_data=(X, Y), metrics=metrics, monitor="name")
    assert result.metrics["name"] == pytest.approx(result.metrics["object"])
    model = brim.load(result.run, nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 5)))
    on_cpu = brim.Trainer(model, (X, Y), loss_fn=nn.CrossEntropyLoss(), device="cpu").evaluate(
        (X, Y), metrics="accuracy"
    )
    assert result.metrics["name"] == pytest.approx(on_cpu["accuracy"], abs=2 / len(X))


def test_evaluations_of_a_loss_that_logs_are_eager_and_those_of_others_captured(tmp_path):
    data = brim.Loader((X, Y), batch_size=32)
    run, lines, _ = fit(tmp_path, "run", returned, eval_data=data, capture="require")
    assert run_now(run).evaluations.evaluator.captured is None
    assert all("eval/sure" in line for line in lines if "eval/loss" in line)
