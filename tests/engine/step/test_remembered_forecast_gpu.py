"""On the card itself: runs with a fresh, a kept and a remembered forecast are the same training."""

import pytest
import torch
from torch import nn

import brim
from brim.memory.planning.plan import Planner

pytestmark = pytest.mark.gpu


def test_a_remembered_forecast_is_the_fresh_one_and_trains_bit_equally(tmp_path, monkeypatch):
    monkeypatch.setenv("BRIM_CACHE", str(tmp_path / "cache"))
    traced, plan = [], Planner.plan

    def counted(self, *args, **kwargs):
        traced.append(args)
        return plan(self, *args, **kwargs)

    monkeypatch.setattr(Planner, "plan", counted)
    x = torch.randn(256, 32, generator=torch.Generator().manual_seed(0))

    def trained(name, forecast):
        torch.manual_seed(3)
        model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, 1))
        trainer = brim.Trainer(
            model, (x, x.sum(1, keepdim=True)), loss_fn=nn.MSELoss(), device="cuda", epochs=2, deterministic=True,
            capture="off", run_dir=tmp_path / name, forecast=forecast,
        )  # fmt: skip
        trainer.fit()
        return trainer.plan.forecast, [parameter.detach().cpu() for parameter in model.parameters()]

    fresh, kept, remembered = trained("fresh", "fresh"), trained("kept", "auto"), trained("remembered", "auto")
    assert len(traced) == 2
    assert fresh[0] == kept[0] == remembered[0]
    for weights in (kept[1], remembered[1]):
        assert all(torch.equal(left, right) for left, right in zip(fresh[1], weights, strict=True))
