import pytest
import torch
from torch import nn

import brim
from brim.engine.components.precision import Precision, resolve_precision
from brim.errors import ConfigError
from brim.float32_products import float32_products

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("name", "meaning"),
    [("32", "32"), ("fp32", "32"), ("bf16", "bf16"), ("bf16-mixed", "bf16"), ("tf32", "tf32"), ("32-ieee", "32")],
)
def test_names_of_other_trainers_mean_the_same(name, meaning):
    assert resolve_precision(name, CPU) == meaning


def test_auto_is_full_precision_on_the_cpu():
    assert resolve_precision("auto", CPU) == "32"


def test_fp16_on_the_cpu_is_refused_with_what_works_there():
    with pytest.raises(ConfigError, match="bf16-mixed"):
        resolve_precision("16-mixed", CPU)


def test_an_unknown_precision_is_refused():
    with pytest.raises(ConfigError, match="precision='8'"):
        resolve_precision("8", CPU)


def test_bf16_computes_the_forward_pass_in_bf16_and_leaves_weights_alone():
    precision, model = Precision("bf16", CPU), nn.Linear(4, 4)
    with precision.autocast():
        assert model(torch.ones(2, 4)).dtype == torch.bfloat16
    assert model.weight.dtype == torch.float32


def test_full_precision_is_full_precision():
    with Precision("32", CPU).autocast():
        assert nn.Linear(4, 4)(torch.ones(2, 4)).dtype == torch.float32


@pytest.mark.gpu
def test_an_fp16_overflow_skips_the_step_and_says_so():
    model = nn.Linear(1, 1, bias=False).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    precision = Precision("16-mixed", torch.device("cuda"))
    precision.tells_if_stepped = True
    before = model.weight.detach().clone()
    precision.backward((model.weight * float("inf")).sum())
    assert not precision.step(optimizer)
    assert torch.equal(model.weight, before)
    optimizer.zero_grad()
    precision.backward(model.weight.sum())
    assert precision.step(optimizer)
    assert not torch.equal(model.weight, before)


@pytest.mark.gpu
def test_auto_is_bf16_on_this_generation_of_gpus():
    expected = "bf16" if torch.cuda.get_device_capability() >= (8, 0) else "fp16"
    assert resolve_precision("auto", torch.device("cuda")) == expected


def test_auto_has_tf32_for_the_rest_on_a_gpu_alone(monkeypatch):
    assert Precision("auto", CPU).tf32 is None and Precision("32", CPU).tf32 is None
    assert Precision("tf32", CPU).tf32 is True and Precision("32-ieee", CPU).tf32 is False
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    assert Precision("auto", torch.device("cuda", 0)).tf32 is True
    assert Precision("bf16-mixed", torch.device("cuda", 0)).tf32 is None


class SeesSwitches(nn.Module):
    """Notes in each pass whether TF32 is allowed."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 1)
        self.seen = set()

    def forward(self, x):
        self.seen.add(torch.backends.cuda.matmul.allow_tf32)
        return self.inner(x)


@pytest.mark.parametrize("name", ["32", "tf32", "32-ieee"])
def test_tf32_holds_in_evaluate_predict_and_steps_and_nowhere_else(name, tmp_path):
    x = torch.randn(8, 3)
    before = name == "32-ieee"  # as the user has it, and it stays so
    data = [(x, x.sum(1, keepdim=True))]
    settings = {"loss_fn": nn.MSELoss(), "device": "cpu", "precision": name, "threads": 1, "run_dir": tmp_path / "run"}
    model = SeesSwitches()
    trainer = brim.Trainer(model, data, **settings)
    own = brim.Step(model, torch.optim.SGD(model.parameters(), lr=0.1), nn.MSELoss(), precision=name)
    with float32_products(before):
        for call in (lambda: trainer.evaluate(data), lambda: trainer.predict(data), lambda: own(*data), trainer.fit):
            model.seen = set()
            call()
            assert model.seen == {name == "tf32"}
            assert torch.backends.cuda.matmul.allow_tf32 == before
