"""The proof on a GPU: what is wrong on purpose is caught, what people train is kept, and nothing is left disturbed."""

import importlib
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import brim
from brim.engine.captured.graph import StepGraph

pytestmark = pytest.mark.gpu
SCALE = 1.0
CALLS = {"forward": 0}
OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, lr=1e-2, momentum=0.9, weight_decay=0.1),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=1e-3, weight_decay=0.1),
}


@pytest.fixture
def rooms(soaking):
    """The models and the mutations of benchmarks/capture_proof.py."""
    return SimpleNamespace(
        models=importlib.import_module("capture_models"), mutations=importlib.import_module("capture_mutations")
    )


def captured_by(kind, rooms, numbers, optimizer, loss=None, steps=6):
    torch.manual_seed(0)
    model = rooms.models.Masked().cuda()
    if numbers == "compiled":
        model.compile()
    told = []
    step = brim.Step(
        model, OPTIMIZERS[optimizer](model.parameters()), loss or rooms.models.masked_loss, clip_norm=1e3,
        precision="bf16" if numbers == "bf16" else "32", tell=told.append,
    )  # fmt: skip
    step._captured.required = True
    step._captured.refuse = lambda reason: setattr(step._captured.report, "reason", reason)
    step._captured.graph_type, step._captured.rates_move = kind, True
    for number in range(steps):
        step({name: tensor.cuda() for name, tensor in rooms.models.masked_batch(number).items()})
    return step.captured, told


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("numbers", ["fp32", "bf16", "compiled"])
def test_the_right_graph_is_kept_and_what_was_proven_is_said(rooms, numbers, optimizer):
    report, told = captured_by(StepGraph, rooms, numbers, optimizer)
    assert report.captured, report.reason
    assert "proven over 3 steps: gradients " in told[-1]
    assert "with the learning rate and the clip changed in between" in told[-1]


MUTATIONS = [
    "RepeatedMask", "FrozenRate", "StaleInput", "UnfilledInput", "MissingGradient", "FrozenCount", "DroppedClip",
    "FrozenDecay",
]  # fmt: skip


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("numbers", ["fp32", "bf16", "compiled"])
@pytest.mark.parametrize("name", MUTATIONS)
def test_every_mutation_is_caught(rooms, name, numbers, optimizer):
    if name == "FrozenCount" and optimizer == "SGD":
        pytest.skip("SGD counts nothing")
    report, _ = captured_by(getattr(rooms.mutations, name), rooms, numbers, optimizer)
    assert not report.captured and report.replays == 0
    assert any(word in report.reason for word in ("gradients", "random numbers", "does not reach")), report.reason


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("numbers", ["fp32", "bf16", "compiled"])
def test_a_global_that_the_step_changes_is_named(rooms, numbers, optimizer):
    def loss_fn(model, batch):
        global SCALE
        SCALE *= 1.1
        return rooms.models.masked_loss(model, batch) * SCALE

    report, _ = captured_by(StepGraph, rooms, numbers, optimizer, loss_fn)
    assert report.reason.startswith("SCALE changes with every step")


ENCODERS = ["BERT, two classes", "BERT, masked tokens", "RoBERTa, labels of tokens", "ViT", "GPT-2, padded"]
DECODERS = ["Llama + LoRA, padded", "Llama + LoRA, no padding"]


@pytest.mark.parametrize("precision", ["32", "bf16"])
@pytest.mark.parametrize("name", ENCODERS + DECODERS)
def test_models_of_transformers_are_captured_with_their_masks(rooms, twins, name, precision):
    """They look into a mask in eager steps and not while they are captured: that is no reason to refuse."""
    if name in DECODERS:
        pytest.importorskip("peft")
    found = rooms.models.language_models("tiny")[name]
    batches = found.batches() * 2

    def make(model):
        """Whose updates are as far apart as the gradients are: Adam makes full steps of what is rounded away."""
        return torch.optim.SGD([one for one in model.parameters() if one.requires_grad], lr=2.0**-6, fused=True)

    settings = {"optimizer": make, "loss_fn": found.loss, "precision": precision}
    eager, captured = (twins.step_through(found.make, batches, how, **settings) for how in ("off", "require"))
    assert captured.report.captured and captured.report.replays == len(batches) - captured.report.eager
    torch.manual_seed(1)
    start = replace(eager, model=found.make().cuda())  # as both began
    assert captured.differs_from(eager) <= (1e-4 if precision == "32" else 2e-2) * eager.differs_from(start)
    assert torch.equal(captured.random, eager.random)


@pytest.mark.parametrize("times", [1.0, 1e5], ids=["", "overflowing"])
def test_fp16_is_proven_at_a_loss_scale_that_does_not_overflow(rooms, twins, times):
    """A scale that is too large at first makes steps that are left out, and such steps prove nothing."""

    def loss_fn(model, batch):
        return rooms.models.masked_loss(model, batch) * times

    batches = [{name: one.cuda() for name, one in rooms.models.masked_batch(number).items()} for number in range(12)]
    settings = {"loss_fn": loss_fn, "precision": "fp16"}
    eager, captured = (twins.step_through(rooms.models.Masked, batches, how, **settings) for how in ("off", "require"))
    assert captured.report.captured and captured.report.replays > 0
    assert captured.equals(eager)
    assert torch.equal(captured.random, eager.random)


class Counting(nn.Module):
    """Counts its calls in itself and in a global, from the fourth step on: the trial is what finds it."""

    def __init__(self):
        super().__init__()
        self.layers, self.calls, self.is_armed = (
            nn.Sequential(nn.Linear(16, 64), nn.Dropout(0.5), nn.Linear(64, 1)),
            0,
            False,
        )

    def forward(self, x):
        if self.is_armed:
            self.calls += 1
            CALLS["forward"] += 1
        return self.layers(x) * (1 + 0.05 * self.calls)


def test_after_a_trial_that_was_refused_every_count_is_what_eager_steps_make_it(twins, monkeypatch):
    counted = []

    def arm(number, model, optimizer):
        model.is_armed = number >= 2

    for how in ("off", "auto"):
        monkeypatch.setitem(CALLS, "forward", 0)
        found = twins.step_through(Counting, [twins.rows(32)] * 20, how, after=arm)
        counted.append((found, found.model.calls, CALLS["forward"]))
    (eager, *expected), (tried, *seen) = counted
    assert "changes with every step" in tried.report.reason
    assert seen == expected == [17, 17]
    assert tried.equals(eager)
    assert torch.equal(tried.random, eager.random)


class Momentum(nn.Module):
    """A second encoder that follows the first one by ``.data``, without a gradient."""

    def __init__(self):
        super().__init__()
        self.inner, self.follower = nn.Linear(16, 16), nn.Linear(16, 16).requires_grad_(False)
        self.out = nn.Linear(16, 1)

    def forward(self, x):
        self.follower.weight.data.mul_(0.9).add_(self.inner.weight.data, alpha=0.1)
        return self.out(self.inner(x) - self.follower(x))


def test_an_encoder_that_follows_another_is_captured_as_it_follows(twins):
    eager, captured = twins(Momentum, twins.rows())
    assert captured.is_accounted_for
    assert captured.equals(eager)


class Shared(nn.Module):
    """Rows of a table that many samples share: their gradients are added up in any order."""

    def __init__(self):
        super().__init__()
        self.table, self.out = nn.Parameter(torch.randn(50, 16)), nn.Linear(16, 1)

    def calculate_loss(self, batch):
        rows = self.table.gather(0, batch["ids"][:, None].expand(-1, 16))
        return (self.out(rows) - batch["y"]).square().mean()


def test_sums_in_any_order_are_proven_within_rounding(twins):
    _, y = twins.rows(20480)
    data = {"ids": torch.arange(20480) % 50, "y": y}
    settings = {"loss_fn": None, "batch_size": 1024}
    eager, captured = twins(Shared, data, **settings)
    assert captured.is_accounted_for
    assert captured.differs_from(eager) <= 1e-4  # eager differs from itself, and Adam makes more of it


class WaitsAtTheEnd(nn.Module):
    """Waits for the device where only a capture finds it: in the backward pass."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(16, 1)

    def forward(self, x):
        return Waiting.apply(self.inner(x))


class Waiting(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * (1.0 if gradient.sum().item() > -1e9 else 2.0)


def test_what_waits_in_the_backward_pass_is_refused_and_training_goes_on(twins):
    eager, tried = twins(WaitsAtTheEnd, twins.rows(), "auto")
    assert "has to wait for a number" in tried.report.reason
    assert tried.equals(eager)
    assert twins.train(twins.mlp, twins.rows(), "require").is_accounted_for
