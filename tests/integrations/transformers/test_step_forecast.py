from types import SimpleNamespace

import pytest
import torch
from helpers.small_bert import arguments, bert
from torch import nn

import brim

pytest.importorskip("transformers", reason="transformers is not installed")

from brim.integrations.transformers.step_forecast import (
    StepForecast,
    forecast_steps,
    why_not_forecast,
)


def batch(size=12):
    return {"input_ids": torch.zeros(size, 8, dtype=torch.long), "labels": torch.zeros(size, dtype=torch.long)}


def made(batch_size=12):
    return brim.forecast(
        lambda: nn.Linear(4, 4), lambda n: ((torch.empty(n, 4),), {}), lambda out: out.sum(),
        batch_size=batch_size, card="NVIDIA H200",
    )  # fmt: skip


def test_it_is_what_brim_forecasts_of_the_same_step(tmp_path):
    model = bert()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    found = forecast_steps(model, optimizer, batch(), arguments(tmp_path), "NVIDIA H200")
    same = brim.forecast(
        bert, lambda n: ((), {name: value[:n] for name, value in batch().items()}), lambda out: out.loss,
        batch_size=12, card="NVIDIA H200", clip_norm=1.0,
    )  # fmt: skip
    assert (found.made.reserved, found.made.parts["optimizer"]) == (same.reserved, same.parts["optimizer"])
    assert found.fits and found.limit == same.limit


def test_the_model_and_the_generators_are_as_before(tmp_path):
    model = bert().train()
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    drawn = torch.get_rng_state()
    forecast_steps(model, torch.optim.SGD(model.parameters(), lr=0.1), batch(), arguments(tmp_path), "NVIDIA H200")
    assert torch.equal(drawn, torch.get_rng_state())
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())
    assert all(p.grad is None and p.device.type == "cpu" for p in model.parameters())


def test_a_sentence_says_what_to_set_for_the_same_batch():
    fits, too_large, hopeless = (StepForecast(made(), 1 << 40, largest) for largest in (None, 5, 0))
    assert "per_device" not in fits.sentence(1)
    assert "per_device_train_batch_size=4 with gradient_accumulation_steps=6" in too_large.sentence(2)
    assert "not even one sample fits" in hopeless.sentence(1)


@pytest.mark.slow
def test_what_does_not_fit_is_told_with_the_largest_that_does(tmp_path, monkeypatch):
    model = bert()
    optimizer = torch.optim.AdamW(model.parameters())
    whole = forecast_steps(model, optimizer, batch(4096), arguments(tmp_path), "NVIDIA H200")
    monkeypatch.setattr(brim.Forecast, "limit", property(lambda self: whole.made.reserved - (2 << 20)))
    found = forecast_steps(model, optimizer, batch(4096), arguments(tmp_path), "NVIDIA H200")
    assert not found.fits and 0 < found.largest < 4096


@pytest.mark.parametrize(
    ("more", "part"),
    [
        ({"device": torch.device("cpu")}, "no GPU here"),
        ({"torch_compile": True}, "torch_compile"),
        ({"deepspeed": {"stage": 3}}, "sharded"),
        ({}, ""),
    ],
)
def test_where_nothing_can_be_said_the_reason_is(more, part):
    known = {"device": torch.device("cuda"), "torch_compile": False, "fsdp": [], "deepspeed": None}
    assert part in why_not_forecast(SimpleNamespace(**{**known, **more}), None)
    assert bool(why_not_forecast(SimpleNamespace(**{**known, **more}), None)) == bool(part)
