"""The proof of a captured step catches what is wrong in it, and lets pass what is right.

On the CPU, with stand-ins for graphs that compute anew at each replay, into the memory of the first time.
"""

import math

import pytest
import torch
from graph_on_cpu import on_cpu
from torch import nn
from torch.nn import functional as F

from brim.engine.captured.graph import StepGraph
from brim.engine.captured.optimizers import DeviceOptimizer, LearningRates
from brim.engine.captured.proof.rounding import Rounding, rounding_of
from brim.engine.captured.proof.step_proof import StepProof
from brim.engine.captured.proof.step_state import StepState
from brim.engine.captured.report import Refusal
from brim.engine.components.loss import loss_of
from brim.engine.components.optimizer_state import allocate_state
from brim.engine.components.precision import Precision
from brim.engine.sandbox.python_state import PythonState
from brim.engine.step.eager_step import EagerStep

pytestmark = pytest.mark.usefixtures("card")
CPU = torch.device("cpu")
OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, lr=1e-3, weight_decay=0.1),
    "SGD with momentum": lambda p: torch.optim.SGD(p, lr=1e-3, momentum=0.9, weight_decay=0.1),
    "Adam": lambda p: torch.optim.Adam(p, lr=1e-3, weight_decay=0.1),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=1e-3, weight_decay=0.1),
    "AdamW, fused": lambda p: torch.optim.AdamW(p, lr=1e-3, weight_decay=0.1, fused=True),
}
NUMBERS = ["32", "bf16", "compiled"]


class Net(nn.Module):
    """A mask in the batch, dropout, a norm with statistics, and a layer whose gradient cancels out."""

    def __init__(self, dropout=0.2):
        super().__init__()
        self.inner, self.norm, self.outer = nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Linear(16, 1)
        self.noise = nn.Dropout(dropout)

    def forward(self, x, mask):
        return self.outer(self.noise(F.gelu(self.norm(self.inner(x))))) * mask

    def calculate_loss(self, batch):
        return (self(batch["x"], batch["mask"]) - batch["y"]).square().mean()


def batch(number, length=12):
    generator = torch.Generator().manual_seed(number)
    x = torch.randn(length, 6, generator=generator)
    mask = (torch.rand(length, 1, generator=generator) > 0.3).float()
    return {"x": x, "y": x.sin().sum(1, keepdim=True), "mask": mask}


class Bench:
    """A step after some warm-up, ready to be proven."""

    def __init__(self, kind=StepGraph, optimizer=OPTIMIZERS["Adam"], numbers="32", model=None, **settings):
        torch.manual_seed(0)
        self.model = (model or Net)()
        compute = loss_of(self.model, None)
        compute = torch.compile(compute, backend="aot_eager") if numbers == "compiled" else compute
        self.optimizer = optimizer(self.model.parameters())
        precision = Precision("bf16" if numbers == "bf16" else "32", CPU)
        self.eager = EagerStep(
            compute, self.optimizer, precision, settings.get("micro_batch"), settings.get("clip_norm")
        )
        self.eager.reads_loss = False
        self.eager.skip_nonfinite = settings.get("skip_nonfinite", False)
        allocate_state(self.optimizer)
        self.windows = settings.get("windows") or [[batch(number)] for number in range(3, 6)]
        for window in settings.get("warm_up") or [[batch(number)] for number in range(3)]:
            self.eager(window)
        self.on_device = DeviceOptimizer(self.optimizer)
        rates = LearningRates(self.optimizer, CPU, settings.get("rates_move", True))
        self.graph = on_cpu(kind)(self.eager, self.windows[0], rates, ring=settings.get("ring"))
        self.rounding = rounding_of(self.model, precision)

    def prove(self):
        state = StepState(self.model, self.optimizer, self.eager.precision)
        start = state.copy()
        self.graph.make_step()
        start.restore()
        self.graph.capture()
        start.restore()
        python = PythonState(self.model)
        proof = StepProof(self.graph, self.windows, state, self.on_device, self.rounding, python)
        return proof.run()


@pytest.mark.matrix(15)
@pytest.mark.parametrize("numbers", NUMBERS)
@pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS)
@pytest.mark.parametrize("clip_norm", [None, 1e3], ids=["whole", "clipped"])
def test_a_right_graph_is_proven_to_the_bit(numbers, optimizer, clip_norm):
    likeness = Bench(optimizer=optimizer, numbers=numbers, clip_norm=clip_norm).prove()
    assert likeness.gradients == 0.0 and likeness.steps == 3
    assert likeness.updates < 1e-5  # the user's optimizer is another kernel than the fused one
    assert str(likeness).startswith("gradients equal to the bit, updates ")
    assert ("the clip" in str(likeness)) == (clip_norm is not None)


CAUGHT = {
    "RepeatedMask": "random numbers|gradients",
    "FrozenRate": "of the same gradients",
    "StaleInput": "gradients",
    "UnfilledInput": "does not reach",
    "MissingGradient": "gradients",
    "FrozenCount": "step: ",
    "DroppedClip": "gradients",
    "FrozenDecay": "of the same gradients",
}


@pytest.mark.matrix(40)
@pytest.mark.parametrize("numbers", NUMBERS)
@pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS)
@pytest.mark.parametrize(("name", "why"), CAUGHT.items(), ids=CAUGHT)
def test_every_mutation_is_caught(mutations, name, why, optimizer, numbers):
    kind = getattr(mutations, name)
    if name == "FrozenCount" and optimizer in (OPTIMIZERS["SGD"], OPTIMIZERS["SGD with momentum"]):
        pytest.skip("SGD counts nothing")
    clip_norm = 1e3 if name == "DroppedClip" else None  # which none of the batches would be clipped by
    with pytest.raises(Refusal, match=why):
        Bench(kind, optimizer, numbers, clip_norm=clip_norm).prove()


@pytest.mark.parametrize("lr", [0.0, 1e-12, 1e-7, 1e-3], ids=str)
@pytest.mark.parametrize(
    ("dtype", "kind"),
    [
        (torch.float32, torch.optim.SGD),
        (torch.float32, torch.optim.AdamW),
        (torch.bfloat16, torch.optim.AdamW),  # torch's fused SGD for the CPU does not step weights of this type at all
    ],
    ids=str,
)
def test_a_frozen_learning_rate_shows_however_small_it_is(mutations, lr, dtype, kind):
    """Below the rounding of the weights no update would be seen, and a warm-up begins with zero."""
    given = {"windows": short(dtype), "warm_up": short(dtype)}
    settings = {"optimizer": lambda p: kind(p, lr=lr), "model": lambda: Net(0.0).to(dtype), **given}
    assert "the learning rate" in str(Bench(**settings).prove())
    with pytest.raises(Refusal, match="of the same gradients"):
        Bench(mutations.FrozenRate, **settings).prove()


def short(dtype):
    return [[{name: tensor.to(dtype) for name, tensor in batch(number).items()}] for number in range(3)]


def test_rates_that_stand_still_are_baked_in_and_not_changed():
    likeness = Bench(rates_move=False).prove()
    assert "the learning rate" not in str(likeness) and likeness.gradients == 0.0


@pytest.mark.parametrize("settings", [{"ring": 4}, {"micro_batch": 5}, {"micro_batch": 5, "clip_norm": 1.0}], ids=str)
def test_other_forms_of_the_step_are_proven_too(settings):
    assert Bench(**settings).prove().gradients == 0.0


def test_one_batch_is_proven_twice():
    assert Bench(windows=[[batch(3)]]).prove().steps == 2


def rows(count, length=12):
    """Batches that are rows of a block, as a feed on the device hands them over."""
    made = [batch(number) for number in range(count)]
    block = {name: torch.cat([one[name] for one in made]) for name in made[0]}
    return [[{n: t[row : row + length] for n, t in block.items()}] for row in range(0, count * length, length)]


class Stuck(StepGraph):
    """Its cursor does not move on."""

    def _keep(self, loss):
        pass


@pytest.mark.parametrize("kind", [StepGraph, Stuck])
def test_a_graph_that_reads_blocks_is_proven_with_rows_of_a_block(kind):
    bench = Bench(kind)
    bench.graph = on_cpu(kind)(bench.eager, rows(3)[0], bench.graph.rates, in_blocks=True)
    if kind is StepGraph:
        assert bench.prove().gradients == 0.0
    else:
        with pytest.raises(Refusal, match="does not reach"):
            bench.prove()


class Clamped(Net):
    """Keeps its weights in bounds within the forward pass."""

    def forward(self, x, mask):
        with torch.no_grad():
            self.inner.weight.clamp_(-0.1, 0.1)
        return super().forward(x, mask)


class Popping(Net):
    """Takes its batch apart, and writes to it."""

    def calculate_loss(self, batch):
        y = batch.pop("y")
        return (self(batch["x"].mul_(0.5), batch.pop("mask")) - y).square().mean()


@pytest.mark.parametrize("model", [Clamped, Popping])
def test_models_with_habits_are_proven(model):
    assert Bench(model=model).prove().gradients == 0.0


def test_steps_with_bad_numbers_that_are_left_out_are_proven():
    spoiled = batch(4)
    spoiled["y"][0] = math.nan
    windows = [[batch(3)], [spoiled], [batch(5)]]
    optimizer = OPTIMIZERS["AdamW, fused"]
    made = Bench(optimizer=optimizer, model=lambda: Plain(), skip_nonfinite=True, windows=windows)
    assert made.prove().gradients == 0.0


class Plain(Net):
    """Without statistics, which a bad batch would spoil."""

    def forward(self, x, mask):
        return self.outer(F.gelu(self.inner(x))) * mask


NOISE = torch.Generator().manual_seed(0)


class Restless(Net):
    """Never computes the same twice, by a generator that no reading of the code finds."""

    def forward(self, x, mask):
        noise = torch.rand(x.shape, generator=globals()["NO" + "ISE"])
        return super().forward(x + noise, mask)


def test_where_eager_steps_differ_from_each_other_that_is_the_reason():
    with pytest.raises(Refusal, match="eager steps differ from each other by more than rounding explains"):
        Bench(model=Restless).prove()


HIDDEN = {"scale": 1.0}


class Annealed(Net):
    """A number that grows with every step, where no reading of the code finds it."""

    def forward(self, x, mask):
        hidden = globals()["HID" + "DEN"]
        hidden["scale"] *= 1.2
        return super().forward(x, mask) * hidden["scale"]


class Frozen(StepGraph):
    """Computes with the number of the moment of capturing, as a graph does."""

    def make_step(self):
        before = dict(HIDDEN)
        self.scale = getattr(self, "scale", before["scale"])
        HIDDEN["scale"] = self.scale
        try:
            return super().make_step()
        finally:
            HIDDEN.update(before)


@pytest.mark.parametrize("numbers", ["32", "bf16"])
@pytest.mark.parametrize("optimizer", [OPTIMIZERS["SGD"], OPTIMIZERS["Adam"]], ids=["SGD", "Adam"])
def test_a_frozen_global_that_nobody_finds_is_caught_by_the_gradients(numbers, optimizer, monkeypatch):
    monkeypatch.setitem(HIDDEN, "scale", 1.0)
    with pytest.raises(Refusal, match=r"gradients than an eager one|differ from each other"):
        Bench(Frozen, optimizer, numbers, model=Annealed).prove()


class Overflowing(Net):
    """Its loss is beyond what its numbers can hold from the start, or from some batch on."""

    def calculate_loss(self, batch):
        return super().calculate_loss(batch) * batch["weight"].sum()


def weighed(*weights):
    return [[{**batch(number), "weight": torch.tensor([weight])}] for number, weight in enumerate(weights)]


@pytest.mark.parametrize("kind", ["StepGraph", "StaleInput"])
@pytest.mark.parametrize("weights", [(math.inf, math.inf, math.inf), (1.0, math.inf, math.nan)], ids=str)
def test_gradients_that_are_not_finite_prove_nothing(mutations, kind, weights):
    """They are the same whatever is wrong with the graph."""
    graph = StepGraph if kind == "StepGraph" else getattr(mutations, kind)
    with pytest.raises(Refusal, match=r"not finite, which proves nothing|other gradients"):
        Bench(graph, model=Overflowing, windows=weighed(*weights), warm_up=weighed(1.0, 1.0, 1.0)).prove()


def test_one_batch_of_three_that_is_not_finite_leaves_enough_to_prove():
    given = {"windows": weighed(1.0, math.inf, 1.0), "warm_up": weighed(1.0, 1.0, 1.0), "skip_nonfinite": True}
    made = Bench(optimizer=OPTIMIZERS["AdamW, fused"], model=lambda: OverflowingPlain(), **given)
    assert made.prove().steps == 2


class OverflowingPlain(Overflowing):
    """Without statistics."""

    def forward(self, x, mask):
        return self.outer(F.gelu(self.inner(x))) * mask


class OtherRounding(StepGraph):
    """Another order of adding up: the gradients are off by a few units in the last place."""

    by = 1e-7

    def make_step(self):
        with self.clip.on_device():
            loss = self.eager.gradients(self.inputs.window())
        for parameter in self.eager.parameters:
            parameter.grad.mul_(1 + self.by)
        with self.rates.on_device():
            self._loss = loss = self.eager.apply(loss).loss
        self._keep(loss)
        return loss


class Unfaithful(OtherRounding):
    by = 1e-3


def test_rounding_is_allowed_and_said_and_more_is_refused():
    said = str(Bench(OtherRounding).prove())
    assert "gradients within 1e-07 of their norm (fp32 rounding allows" in said
    with pytest.raises(Refusal, match="other gradients"):
        Bench(Unfaithful).prove()


def test_adam_does_not_hide_a_difference_that_it_would_make_larger():
    """A gradient of nothing but rounding is of no account, though Adam makes a step of full size of it."""
    bench = Bench(OtherRounding, OPTIMIZERS["Adam"])
    assert bench.prove().gradients < Rounding("fp32", 16).share


class Whispering(Net):
    """Has a parameter whose gradient is far below what rounding allows of all the others."""

    def __init__(self):
        super().__init__()
        self.whisper = nn.Parameter(torch.zeros(1))

    def forward(self, x, mask):
        return super().forward(x, mask) + 1e-9 * self.whisper


class WithoutWhisper(StepGraph):
    """Its gradient is left over from another batch."""

    def make_step(self):
        with self.clip.on_device():
            loss = self.eager.gradients(self.inputs.window())
        victim = next(p for p in self.eager.parameters if p.numel() == 1 and p.grad.abs() < 1e-6)
        self.stale = getattr(self, "stale", victim.grad.clone())
        victim.grad = self.stale
        with self.rates.on_device():
            self._loss = loss = self.eager.apply(loss).loss
        self._keep(loss)
        return loss


@pytest.mark.parametrize("numbers", ["32", "bf16"])
def test_a_missing_gradient_shows_however_small_it_is(numbers):
    assert Bench(model=Whispering, numbers=numbers).prove().gradients == 0.0
    with pytest.raises(Refusal, match="gradients"):
        Bench(WithoutWhisper, model=Whispering, numbers=numbers).prove()
