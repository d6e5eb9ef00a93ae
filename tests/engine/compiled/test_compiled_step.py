"""Trainings with a compiled loss beside the same trainings without; the backend is torch's aot_eager, a quick one."""

import json

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters

import brim
from brim.engine.calling.compiler import Compiler
from brim.engine.compiled import compile_report, compiled_step
from brim.engine.run import step_choice

BY_BLOCKS = {"backend": "aot_eager", "per": "block"}
AUTO = Compiler(is_auto=True, backend="aot_eager", per="block")


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.linear, self.drop = nn.LayerNorm(8), nn.Linear(8, 8), nn.Dropout(0.2)

    def forward(self, x):
        return x + self.drop(torch.tanh(self.linear(self.norm(x))))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(11, 8)
        self.blocks = nn.ModuleList(Block() for _ in range(4))
        self.head = nn.Linear(8, 1)

    def forward(self, words):
        x = self.words(words)
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(1))


def batches(lengths=(5,) * 8, size=6):
    generator = torch.Generator().manual_seed(0)
    words = [torch.randint(0, 11, (size, length), generator=generator) for length in lengths]
    return [(one, one.float().mean(1, keepdim=True) / 10) for one in words]


SIZE = {"size": lambda outputs, batch: outputs.mean()}


def trained(compile, path, data=None, **settings):
    torch.manual_seed(0)
    model = Net()
    given = {"loss_fn": nn.MSELoss(), "device": "cpu", "threads": 1, "epochs": 2, "optimizer": "SGD", "lr": 0.1}
    trainer = brim.Trainer(model, data or batches(), run_dir=path, compile=compile, **{**given, **settings})
    trainer.fit()
    return model, trainer


def assert_same(one, other):
    assert list(one.state_dict()) == list(other.state_dict())
    for name, tensor in one.state_dict().items():
        torch.testing.assert_close(tensor, other.state_dict()[name], rtol=1e-4, atol=1e-6, msg=name)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        pytest.param({"micro_batch": 2, "accumulate_grad_batches": 2}, marks=pytest.mark.slow),
        pytest.param({"checkpointing": True, "eval_data": batches(), "metrics": SIZE}, marks=pytest.mark.slow),
        pytest.param({"ema": 0.9, "eval_data": batches()}, marks=pytest.mark.slow),
    ],
    ids=["plain", "micro-batches", "checkpointing", "ema"],
)
def test_blocks_compiled_train_as_eager_ones_dropout_included(tmp_path, settings):
    eager, _ = trained(False, tmp_path / "eager", **settings)
    counters.clear()
    compiled, _ = trained(BY_BLOCKS, tmp_path / "compiled", **settings)
    assert counters["stats"]["unique_graphs"]
    assert_same(eager, compiled)


@pytest.mark.slow
def test_bf16_mixed_is_in_the_class_of_its_rounding(tmp_path):
    eager, _ = trained(False, tmp_path / "eager", precision="bf16-mixed")
    compiled, _ = trained(BY_BLOCKS, tmp_path / "compiled", precision="bf16-mixed")
    for one, other in zip(eager.parameters(), compiled.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=2e-2, atol=2e-3)


def test_one_function_serves_all_blocks_and_nothing_stays_on_the_model(tmp_path):
    counters.clear()
    model, _ = trained(BY_BLOCKS, tmp_path / "run")
    assert counters["stats"]["unique_graphs"] <= 2  # a block, and the criterion
    assert not any("forward" in vars(module) for module in model.modules())
    saved = next((tmp_path / "run").rglob("*.safetensors"), None)
    assert saved is None or "_orig_mod" not in saved.read_bytes().decode("latin-1")


@pytest.mark.slow
def test_a_ragged_loader_compiles_at_most_two_times_more(tmp_path):
    lengths = (5, 7, 6, 9, 8, 12, 5, 10, 11, 4)
    eager, _ = trained(False, tmp_path / "eager", batches(lengths))
    counters.clear()
    compiled, _ = trained(BY_BLOCKS, tmp_path / "compiled", batches(lengths))
    assert counters["stats"]["unique_graphs"] <= 3 * 2  # of the block, and of the criterion
    assert_same(eager, compiled)


@pytest.mark.slow
def test_a_run_goes_on_compiled_from_an_eager_checkpoint(tmp_path):
    whole, _ = trained(False, tmp_path / "whole", epochs=2)
    trained(False, tmp_path / "run", epochs=1)
    torch.manual_seed(0)
    model = Net()
    given = {"loss_fn": nn.MSELoss(), "device": "cpu", "threads": 1, "epochs": 2, "optimizer": "SGD", "lr": 0.1}
    brim.Trainer(model, batches(), compile=BY_BLOCKS, **given).fit(resume=tmp_path / "run")
    assert_same(whole, model)


def decision(path):
    return json.loads((path / "plan.json").read_text())["choices"]["compile"]


def used(report):
    report.is_compiled = True
    return report


@pytest.fixture
def eager_to_try(monkeypatch):
    """Every run is long enough, and every gain large enough: this backend has none."""
    monkeypatch.setattr(compile_report, "LEAST_SECONDS", 0.0)
    monkeypatch.setattr(compiled_step, "decided", used)
    monkeypatch.setattr(step_choice.Compiler, "of", classmethod(lambda cls, value: AUTO if value == "auto" else None))


def test_auto_proves_compiled_steps_and_goes_on_with_them(tmp_path, eager_to_try):
    eager, _ = trained(False, tmp_path / "eager")
    compiled, _ = trained("auto", tmp_path / "compiled")
    told = decision(tmp_path / "compiled")
    assert told["used"]
    assert "proven over 3 steps: gradients" in told["likeness"]
    assert_same(eager, compiled)


def test_auto_says_why_a_short_run_is_not_compiled(tmp_path):
    counters.clear()
    trained("auto", tmp_path / "run")
    assert decision(tmp_path / "run")["reason"].startswith("12 steps are left, which could save")
    assert not counters["stats"]


def test_auto_is_off_in_deterministic_runs(tmp_path):
    trained("auto", tmp_path / "run", deterministic=True)
    assert decision(tmp_path / "run")["reason"].startswith("deterministic=True")


def test_auto_goes_on_eagerly_where_compiling_fails(tmp_path, eager_to_try, monkeypatch):
    def fail(*args, **kwargs):
        raise RuntimeError("no compiler here")

    monkeypatch.setattr(compiled_step.CompileTrial, "_gradients", fail)
    eager, _ = trained(False, tmp_path / "eager")
    found, _ = trained("auto", tmp_path / "run")
    assert decision(tmp_path / "run")["reason"] == "compiling failed: RuntimeError: no compiler here"
    assert_same(eager, found)


def test_auto_does_not_use_what_computes_something_else(tmp_path, eager_to_try, monkeypatch):
    plain = compiled_step.CompiledLoss.__call__
    monkeypatch.setattr(compiled_step.CompiledLoss, "__call__", lambda self, batch: plain(self, batch) * 1.01)
    eager, _ = trained(False, tmp_path / "eager")
    found, _ = trained("auto", tmp_path / "run")
    assert "a compiled step gave other gradients" in decision(tmp_path / "run")["reason"]
    assert_same(eager, found)


def test_auto_makes_a_step_again_eagerly_whose_compiling_fails_in_mid_run(tmp_path, eager_to_try, monkeypatch):
    plain = compiled_step.CompiledLoss.__call__

    def fail_late(self, batch):
        loss = plain(self, batch)
        if getattr(self, "trial_is_over", False):
            raise torch._dynamo.exc.InternalTorchDynamoError("gave up")
        return loss

    settle = compiled_step.CompiledStep._settle

    def settled(self, reason):
        settle(self, reason)
        self.compiled.trial_is_over = True

    monkeypatch.setattr(compiled_step.CompiledLoss, "__call__", fail_late)
    monkeypatch.setattr(compiled_step.CompiledStep, "_settle", settled)
    eager, _ = trained(False, tmp_path / "eager")
    found, _ = trained("auto", tmp_path / "run")
    assert decision(tmp_path / "run")["reason"] == "compiling failed: InternalTorchDynamoError: gave up"
    assert_same(eager, found)
