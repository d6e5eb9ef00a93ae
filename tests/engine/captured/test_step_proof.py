"""The proof of a captured step catches what is wrong in it, and lets pass what is right.

On the CPU, with stand-ins for graphs that compute anew at each replay, into the memory of the first time.
"""

import importlib
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from brim.engine.captured import state as state_room
from brim.engine.captured.graph import StepGraph
from brim.engine.captured.optimizers import DeviceOptimizer, LearningRates
from brim.engine.captured.report import Refusal
from brim.engine.captured.rounding import Rounding, rounding_of
from brim.engine.captured.state import StepState
from brim.engine.captured.static_inputs import LossRing
from brim.engine.captured.step_proof import StepProof
from brim.engine.loss import loss_of
from brim.engine.optimizer_state import allocate_state
from brim.engine.precision import Precision
from brim.engine.python_state import PythonState
from brim.engine.step import EagerStep

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


class OnCpu(StepGraph):
    """Makes the step at every replay, in the memory of the first one."""

    def capture(self, pool=None, stream=None):
        self.eager.clear_gradients()
        self.make_step()
        self._ring = None if self._ring_size is None else LossRing(self._ring_size, self._loss, self.inputs.cursor)
        self.gradients = [(p, p.grad) for p in self.eager.parameters if p.grad is not None]

    def _run(self):
        self.make_step()
        for parameter, memory in self.gradients:
            memory.copy_(parameter.grad)
            parameter.grad = memory


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
        self.eager = EagerStep(compute, self.optimizer, precision, settings.get("micro_batch"), settings.get("clip_norm"))
        self.eager.reads_loss = False
        self.eager.leaves_bad_out = settings.get("leaves_bad_out", False)
        allocate_state(self.optimizer)
        windows = [[batch(number)] for number in range(6)]
        for window in windows[:3]:
            self.eager(window)
        self.on_device = DeviceOptimizer(self.optimizer)
        rates = LearningRates(self.optimizer, CPU, settings.get("rates_move", True))
        made = OnCpu if kind is StepGraph else type(f"{kind.__name__}OnCpu", (kind, OnCpu), {})
        self.graph = made(self.eager, windows[3], rates, ring=settings.get("ring"))
        self.windows = settings.get("windows", windows[3:])
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


@pytest.fixture(autouse=True)
def card(monkeypatch):
    """Memory for copies, as on a card with room."""
    monkeypatch.setattr(state_room, "usable_memory", lambda device: 1 << 30)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 0)


@pytest.fixture
def mutations(soaking):
    return importlib.import_module("capture_mutations")


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
