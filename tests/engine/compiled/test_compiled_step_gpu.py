"""Inductor on a GPU: proven, timed, captured, beside the same training without it."""

import pytest
import torch
from helpers.compiled_training import Net, batches, decision
from torch import nn

import brim
from brim.engine.compiled import compile_report

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def long_enough(monkeypatch):
    monkeypatch.setattr(compile_report, "LEAST_SECONDS", 0.0)


def trained(path, **settings):
    torch.manual_seed(0)
    model = Net()
    given = {"loss_fn": nn.MSELoss(), "device": "cuda", "epochs": 10, "optimizer": "SGD", "lr": 0.1}
    trainer = brim.Trainer(model, batches(), run_dir=path, **{**given, **settings})
    trainer.fit()
    return model, trainer


def assert_close(one, other):
    for name, tensor in one.state_dict().items():
        torch.testing.assert_close(tensor, other.state_dict()[name], rtol=1e-3, atol=1e-4, msg=name)


@pytest.mark.parametrize("capture", ["off", "auto"])
def test_auto_is_the_same_training_dropout_included(tmp_path, capture):
    eager, _ = trained(tmp_path / "eager", capture="off")
    found, _ = trained(tmp_path / "auto", capture=capture, compile="auto")
    told = decision(tmp_path / "auto")
    assert told["likeness"].startswith("proven over 3 batches"), told["reason"]
    assert_close(eager, found)


def test_compiled_by_name_and_captured_it_is_the_same_training(tmp_path):
    eager, _ = trained(tmp_path / "eager", capture="off")
    found, trainer = trained(tmp_path / "both", compile={"per": "block"}, capture="auto")
    assert trainer.captured.captured or trainer.captured.reason
    assert_close(eager, found)


def test_a_ragged_loader_is_proven_and_is_the_same_training(tmp_path):
    ragged = batches((5, 7, 6, 9, 8, 12, 5, 10, 11, 4))
    runs = {"eager": {"capture": "off"}, "auto": {"capture": "off", "compile": "auto"}}
    models = {}
    for name, settings in runs.items():
        torch.manual_seed(0)
        models[name] = Net()
        given = {"loss_fn": nn.MSELoss(), "device": "cuda", "epochs": 6, "optimizer": "SGD", "lr": 0.1, **settings}
        brim.Trainer(models[name], ragged, run_dir=tmp_path / name, **given).fit()
    told = decision(tmp_path / "auto")
    assert told["likeness"] or told["reason"]
    assert_close(models["eager"], models["auto"])
