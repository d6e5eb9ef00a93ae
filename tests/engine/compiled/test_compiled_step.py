"""Trainings with a compiled loss beside the same trainings without; the backend is torch's aot_eager, a quick one."""

import numpy as np
import pytest
import torch
from helpers.compiled_training import AUTO, BY_BLOCKS, Net, assert_same, batches, decision, trained
from helpers.faults import At, failing
from torch import nn
from torch._dynamo.utils import counters

import brim
from brim.engine.calling.compiler import Compiler
from brim.engine.compiled import compiled_step
from brim.engine.compiled.outside_blocks import OutsideBlocks
from brim.engine.components.loss import loss_of
from brim.engine.components.precision import Precision
from brim.engine.run import step_choice
from brim.engine.step.eager_step import EagerStep
from brim.engine.step.guard import GuardedStep

SIZE = {"size": lambda outputs, batch: outputs.mean()}


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
def test_a_model_compiled_as_one_may_be_computed_again_in_the_backward_pass(tmp_path):
    eager, _ = trained(False, tmp_path / "eager")
    compiled, _ = trained({"backend": "aot_eager"}, tmp_path / "compiled", checkpointing=True)
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


def test_auto_proves_compiled_steps_and_goes_on_with_them(tmp_path, eager_to_try):
    eager, _ = trained(False, tmp_path / "eager")
    compiled, _ = trained("auto", tmp_path / "compiled")
    told = decision(tmp_path / "compiled")
    assert told["used"]
    assert "proven over 3 batches: gradients" in told["likeness"]
    assert_same(eager, compiled)


def test_labels_that_are_the_inputs_are_that_in_the_proof_too(tmp_path, eager_to_try, monkeypatch):
    """Code is compiled for tensors that are one, or for tensors that are two."""
    monkeypatch.setattr(OutsideBlocks, "share", 1.0)
    data = [(words, words) for words, _ in batches()]

    def loss_fn(model, batch):
        return (model(batch[0]) - batch[1].float().mean(1, keepdim=True) / 10).square().mean()

    settings = {"data": data, "loss_fn": loss_fn}
    eager, _ = trained(False, tmp_path / "eager", **settings)
    counters.clear()
    found, _ = trained("auto", tmp_path / "run", **settings)
    assert decision(tmp_path / "run")["used"], decision(tmp_path / "run")
    assert counters["stats"]["unique_graphs"] <= 2  # a block, and what is around: once
    assert_same(eager, found)


def test_auto_says_why_a_short_run_is_not_compiled(tmp_path):
    counters.clear()
    trained("auto", tmp_path / "run")
    assert decision(tmp_path / "run")["reason"].startswith("12 steps are left, which could save")
    assert not counters["stats"]


def test_steps_by_which_threads_are_tried_are_not_timed():
    model, told = Net(), []
    optimizer, loss = torch.optim.SGD(model.parameters(), lr=0.1), loss_of(model, nn.MSELoss())
    guard = GuardedStep(EagerStep(loss, optimizer, Precision("32", torch.device("cpu"))), model)

    class TriesThreads:
        is_trying = True
        __call__ = staticmethod(guard)

    inner = TriesThreads()
    say = lambda sentence, **facts: told.append(sentence)  # noqa: E731
    step = compiled_step.CompiledStep(inner, guard, loss, AUTO, lambda: 0, say)
    for batch in batches():
        step([batch])
    assert not told
    inner.is_trying = False
    for batch in batches():
        step([batch])
    assert "0 steps are left" in told[0]


def test_auto_says_that_a_run_ended_before_it_was_decided(tmp_path):
    trained("auto", tmp_path / "run", batches((5,) * 3), epochs=1)
    assert decision(tmp_path / "run")["reason"] == compiled_step.UNDECIDED


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


def test_auto_goes_on_eagerly_where_no_memory_is_left_for_the_proof(tmp_path, eager_to_try, monkeypatch):
    monkeypatch.setattr(compiled_step, "alike_copy", failing(compiled_step.alike_copy, At(2)))
    eager, _ = trained(False, tmp_path / "eager")
    found, _ = trained("auto", tmp_path / "run")
    assert decision(tmp_path / "run")["reason"] == compiled_step.NO_MEMORY
    assert_same(eager, found)


@pytest.mark.slow
def test_auto_goes_on_eagerly_without_a_cxx_compiler(tmp_path, eager_to_try, monkeypatch):
    from torch._inductor import config

    by_inductor = Compiler(is_auto=True, per="block")
    monkeypatch.setattr(step_choice.Compiler, "of", classmethod(lambda cls, value: by_inductor if value else None))
    eager, _ = trained(False, tmp_path / "eager")
    with config.patch({"cpp.cxx": (None, "no-such-compiler")}):  # monkeypatch would delete what it puts back
        found, _ = trained("auto", tmp_path / "run")
    reason = decision(tmp_path / "run")["reason"]
    assert reason.startswith("compiling failed: ")
    assert "no-such-compiler" in reason or "InvalidCxxCompiler" in reason
    assert_same(eager, found)


class Drawing(nn.Linear):
    """Draws from numpy, for which torch puts numbers of its own."""

    def forward(self, words):
        return super().forward(words / 100) * (1 + 0.1 * float(np.random.rand()))


def test_auto_keeps_the_draws_of_numpy(tmp_path, eager_to_try):
    def run(way, path):
        np.random.seed(0)
        return trained(way, path, make=lambda: Drawing(5, 1))[0]

    eager, found = run(False, tmp_path / "eager"), run("auto", tmp_path / "run")
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

    def settled(self, reason, is_used):
        settle(self, reason, is_used)
        self.compiled.trial_is_over = True

    monkeypatch.setattr(compiled_step.CompiledLoss, "__call__", fail_late)
    monkeypatch.setattr(compiled_step.CompiledStep, "_settle", settled)
    eager, _ = trained(False, tmp_path / "eager")
    found, _ = trained("auto", tmp_path / "run")
    assert decision(tmp_path / "run")["reason"] == "compiling failed: InternalTorchDynamoError: gave up"
    assert_same(eager, found)
