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


def test_a_model_that_looks_into_its_mask_is_compiled_without_waiting_for_the_gpu_and_captured(tmp_path):
    """GPT-2 reads from its positions whether sequences are packed, but not while a stream is captured."""
    transformers = pytest.importorskip("transformers")
    sizes = {"n_layer": 4, "n_embd": 32, "n_head": 2, "vocab_size": 50, "n_positions": 32}
    config = transformers.GPT2Config(**sizes, bos_token_id=0, eos_token_id=0, resid_pdrop=0.0, embd_pdrop=0.0)
    tokens = [torch.randint(0, 50, (4, 24), generator=torch.Generator().manual_seed(number)) for number in range(20)]
    data = [{"input_ids": one, "labels": one} for one in tokens]
    models = {}
    for name, settings in {"eager": {"capture": "off"}, "auto": {"compile": "auto"}}.items():
        torch.manual_seed(0)
        models[name] = transformers.GPT2LMHeadModel(config)
        given = {"device": "cuda", "epochs": 2, "optimizer": "SGD", "lr": 0.1, **settings}
        trainer = brim.Trainer(models[name], data, run_dir=tmp_path / name, **given)
        trainer.fit()
    assert decision(tmp_path / "auto")["likeness"].startswith("proven over 3 batches"), decision(tmp_path / "auto")
    assert "host has to wait" not in trainer.captured.reason, trainer.captured
    assert_close(models["eager"], models["auto"])
