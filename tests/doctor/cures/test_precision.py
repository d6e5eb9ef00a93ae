import pytest
import torch
from torch import nn
from torch.nn.modules import module as modules

from brim.doctor.cures.precision import compute_in_bf16, multiply_in_tf32


@pytest.fixture(autouse=True)
def undone(monkeypatch):
    for name in ("_global_forward_hooks", "_global_forward_pre_hooks", "_global_forward_hooks_always_called"):
        hooks = getattr(modules, name)
        monkeypatch.setattr(modules, name, type(hooks)(hooks))
    precision, allowed = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    yield
    torch.set_float32_matmul_precision(precision)
    torch.backends.cudnn.allow_tf32 = allowed


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.seen = nn.Linear(8, 8), []

    def forward(self, x):
        y = self.inner(x)
        self.seen.append((y.dtype, torch.is_autocast_enabled("cpu")))
        if x.sum() > 1e6:
            raise ValueError("too large")
        return {"logits": y, "name": "model"}


def test_forward_passes_are_bf16_inside_and_fp32_outside():
    compute_in_bf16()
    model, x = Model(), torch.randn(4, 8)
    output = model(x)
    assert model.seen == [(torch.bfloat16, True)] and output["logits"].dtype == torch.float32
    assert not torch.is_autocast_enabled("cpu")
    output["logits"].sum().backward()
    assert model.inner.weight.grad.dtype == torch.float32


def test_weights_that_were_updated_are_cast_anew():
    compute_in_bf16()
    model, x = nn.Linear(4, 1, bias=False), torch.ones(1, 4)
    before = model(x).item()
    with torch.no_grad():
        model.weight.mul_(2)
    assert model(x).item() == pytest.approx(2 * before, rel=1e-6)


def test_a_model_that_fails_leaves_autocast_off_and_the_next_call_works():
    compute_in_bf16()
    model = Model()
    with pytest.raises(ValueError, match="too large"):
        model(torch.full((4, 8), 1e9))
    assert not torch.is_autocast_enabled("cpu")
    assert model(torch.ones(1, 8))["logits"].dtype == torch.float32 and len(model.seen) == 2


def test_tf32_is_switched_on():
    multiply_in_tf32()
    assert torch.get_float32_matmul_precision() == "high" and torch.backends.cudnn.allow_tf32
