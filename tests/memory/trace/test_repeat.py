"""The third step is the second one over again; where it is not, it is really run."""

import copy

import pytest
import torch
from torch import nn

from brim.hardware.cards import H200
from brim.memory.allocator.peak import find_peak
from brim.memory.forecast import make_job
from brim.memory.trace import steps
from brim.memory.trace.repeat import repeat_last_step
from brim.memory.trace.trace import DEATH, Storage, Trace

OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "adamw": torch.optim.AdamW,
    "adamw_loop": lambda p: torch.optim.AdamW(p, foreach=False),
    "amsgrad": lambda p: torch.optim.AdamW(p, amsgrad=True),
    "adafactor": torch.optim.Adafactor,
}


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(96, 700), nn.BatchNorm1d(700), nn.ReLU(), nn.Dropout(0.1), nn.Linear(700, 10))


class Sequences(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(500, 96)
        self.body = nn.LSTM(96, 64, num_layers=2, dropout=0.1, batch_first=True)
        self.attend = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)

    def forward(self, tokens):
        return self.attend(self.body(self.embed(tokens))[0])


def numbers(n: int):
    return (torch.randn(n, 96),), {}


def tokens(n: int):
    return (torch.randint(0, 500, (n, 40)),), {}


def traced(job, monkeypatch: pytest.MonkeyPatch, really: bool) -> Trace:
    with monkeypatch.context() as patch:
        if really:
            patch.setattr(steps, "repeat_last_step", lambda trace: False)
        return steps.trace_steps(job, 32, H200, (2, 11))


@pytest.mark.matrix(2)
@pytest.mark.parametrize("precision", ["32", "bf16", "fp16"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize(("model", "batch"), [(perceptron, numbers), (Sequences, tokens)], ids=["mlp", "sequences"])
def test_a_repeated_step_has_the_peaks_of_a_traced_one(model, batch, optimizer, precision, monkeypatch) -> None:
    job = make_job(model, batch, None, OPTIMIZERS[optimizer], precision)
    repeated, real = traced(job, monkeypatch, False), traced(job, monkeypatch, True)
    for expandable in (False, True):
        of_repeated, of_real = find_peak(repeated, expandable), find_peak(real, expandable)
        assert (of_repeated.allocated, of_repeated.reserved) == (of_real.allocated, of_real.reserved)
        assert (of_repeated.phase, of_repeated.parts) == (of_real.phase, of_real.parts)


@pytest.mark.parametrize("accumulation", [2, 3])
def test_a_repeated_step_of_several_slices_has_the_peaks_of_a_traced_one(accumulation, monkeypatch) -> None:
    job = make_job(perceptron, numbers, accumulation=accumulation)
    repeated, real = traced(job, monkeypatch, False), traced(job, monkeypatch, True)
    assert find_peak(repeated) == find_peak(real)
    assert [phase for _, phase in repeated.marks] == [phase for _, phase in real.marks]


def test_storages_are_born_once_before_they_die(monkeypatch) -> None:
    trace = traced(make_job(perceptron, numbers), monkeypatch, False)
    born: set[int] = set()
    for number, size in trace.events:
        if size == DEATH:
            assert number in born
        else:
            assert number not in born
            assert size == trace.storages[number].size
            born.add(number)
    assert born == set(range(len(trace.storages)))


def test_a_step_that_grows_is_really_run(monkeypatch) -> None:
    class Growing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(96, 96)
            self.kept = []

        def forward(self, x):
            self.kept.append(self.layer(x).detach())
            return self.layer(x)

    job = make_job(Growing, numbers)
    assert find_peak(traced(job, monkeypatch, False)) == find_peak(traced(job, monkeypatch, True))


# -- traces by hand ----------------------------------------------------------------------------------------------------


def steps_of(*sizes: tuple[int, ...], stepping: bool = True) -> Trace:
    """Each step frees what the step before it left, and leaves storages of these sizes; then the optimizer steps."""
    trace, left = Trace(), list[int]()
    for step in sizes:
        trace.marks.append((len(trace.events), "batch"))
        trace.events += [(number, DEATH) for number in left]
        left = []
        for size in step:
            left.append(len(trace.storages))
            trace.events.append((left[-1], size))
            trace.storages.append(Storage(size, "operator", "forward"))
        trace.marks.append((len(trace.events), "optimizer"))
        if stepping:
            trace.events += [(len(trace.storages), 64), (len(trace.storages), DEATH)]
            trace.storages.append(Storage(64, "operator", "optimizer"))
    return trace


def test_a_step_is_appended_with_its_marks() -> None:
    trace = steps_of((100, 200), (100, 200))
    assert repeat_last_step(trace)
    assert trace.events == steps_of((100, 200), (100, 200), (100, 200)).events
    assert trace.marks == steps_of((100, 200), (100, 200), (100, 200)).marks


def test_an_optimizer_that_allocates_nothing_is_marked_once_a_step() -> None:
    trace = steps_of((100,), (100,), stepping=False)
    assert repeat_last_step(trace)
    assert trace.marks == steps_of((100,), (100,), (100,), stepping=False).marks


@pytest.mark.parametrize(
    "trace",
    [steps_of((100,)), steps_of((100, 200), (100, 300)), steps_of((100,), (100, 200)), steps_of((100, 200), (100,))],
    ids=["one step", "another size", "one more", "one less"],
)
def test_a_step_that_does_not_match_is_refused_and_nothing_appended(trace: Trace) -> None:
    before = copy.deepcopy(trace)
    assert not repeat_last_step(trace)
    assert trace == before
