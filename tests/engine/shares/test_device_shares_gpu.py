"""Delays that are planted in trainings on a GPU: what a run records of them, beside what a profiler sees.

The truth is torch's profiler on the same training without the recorder, reduced as the doctor does it: what is not
idle time by the trace is taken against the time of a step without a profiler, which slows the host down.
"""

import json
import time
from dataclasses import dataclass
from itertools import combinations

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils.data import DataLoader, Dataset

import brim
from brim.doctor.trace.events import STEP, read_events
from brim.doctor.trace.reduce import reduce_events
from brim.engine.captured.host.waiting import no_waiting
from brim.engine.run import assembly
from brim.engine.shares.device_events import CudaEvents
from brim.engine.shares.device_shares import DeviceShares
from brim.engine.shares.host_shares import HostShares
from brim.engine.shares.recorded_shares import gpu_memory
from brim.sensors.duty_cycle import DutyCycleSensor

pytestmark = pytest.mark.gpu

NAMES = ("data_wait", "copy", "compute", "sync", "launch")
STEPS, LOG_EVERY = 400, 20
FIRST, LAST = 40, 70  # of the steps that are profiled


@dataclass(frozen=True)
class Planted:
    """What a step does beside a tiny model; seconds, and bytes of a batch."""

    sleep: float = 0.0
    size: int = 0
    spin: float = 0.0
    reads: bool = False
    launches: int = 0

    def __or__(self, other):
        return Planted(
            max(self.sleep, other.sleep), max(self.size, other.size), max(self.spin, other.spin),
            self.reads or other.reads, max(self.launches, other.launches),
        )  # fmt: skip


PLANTED = {
    "a sleep in the data set": Planted(sleep=6e-3),
    "a copy": Planted(size=256 << 20),
    "a spin kernel": Planted(spin=6e-3),
    "a read": Planted(reads=True, spin=3e-3),
    "empty launches": Planted(launches=800),
}
LARGE = {"a sleep in the data set": "data_wait", "a copy": "copy", "a spin kernel": "compute", "a read": "sync",
         "empty launches": "launch"}  # fmt: skip


class Batches(Dataset):
    """Page-locked ones, so that the host has nothing to do but to wait."""

    def __init__(self, planted):
        self.planted = planted
        self.batch = torch.ones(8, max(8, planted.size // 32)).pin_memory()

    def __len__(self):
        return STEPS

    def __getitem__(self, place):
        if self.planted.sleep:
            time.sleep(self.planted.sleep)
        return self.batch


class Loss:
    def __init__(self, planted):
        self.planted = planted
        self.cycles = cycles_a_second()
        self.tiny = torch.zeros(1, device="cuda")

    def spin(self, seconds):
        torch.cuda._sleep(int(seconds * self.cycles))

    def __call__(self, model, batch):
        for _ in range(self.planted.launches):
            self.tiny.add_(1)
        if self.planted.spin:
            self.spin(self.planted.spin / 2)
        if self.planted.reads:
            self.tiny.item()
            time.sleep(3e-3)
        if self.planted.spin:
            self.spin(self.planted.spin / 2)
        return model(batch[:, :8]).square().mean()


class Profiled(brim.Callback):
    """Marks the steps as the doctor does, and profiles some of them."""

    def __init__(self, path):
        self.path = path
        self.profiler = profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])

    def on_step_end(self, trainer, step, loss):
        if step == FIRST:
            torch.cuda.synchronize()
            self.profiler.start()
        if FIRST <= step <= LAST:
            with record_function(STEP):
                pass
        if step == LAST:
            torch.cuda.synchronize()
            self.profiler.stop()
            self.profiler.export_chrome_trace(str(self.path))


def cycles_a_second():
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(1_000_000)
    start.record()
    torch.cuda._sleep(20_000_000)
    end.record()
    torch.cuda.synchronize()
    return 20_000_000 / (start.elapsed_time(end) / 1e3)


def train(folder, planted, steps=STEPS, **settings):
    """The lines of the log, from the middle on."""
    trainer = brim.Trainer(
        nn.Linear(8, 1), DataLoader(Batches(planted), batch_size=None), loss_fn=Loss(planted), device="cuda",
        max_steps=steps, log_every=LOG_EVERY, micro_batch=8, run_dir=folder, **{"capture": "off", **settings},
    )  # fmt: skip
    trainer.fit()
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if "step_ms" in line and line["step"] > steps // 2]


def recorded(lines):
    told = [line for line in lines if "share/compute" in line]
    assert len(told) >= len(lines) // 2
    for line in told:
        assert sum(line[f"share/{name}"] for name in NAMES) == pytest.approx(1, abs=0.02)
    return {name: sum(line[f"share/{name}"] for line in told) / len(told) for name in NAMES}


def by_profiler(folder, planted, step, monkeypatch, **settings):
    with monkeypatch.context() as patch:
        patch.setattr(assembly, "shares_recorder", lambda device, accumulation: HostShares(computes_here=False))
        callback = Profiled(folder.with_suffix(".json"))
        train(folder, planted, LAST + 2, callbacks=[callback], **settings)
    seen = reduce_events(read_events(callback.path))
    parts = [part / step for part in (seen.data, seen.copy, seen.compute, seen.sync)]
    return dict(zip(NAMES, [*parts, 1 - sum(parts)], strict=True))


def check(tmp_path, monkeypatch, planted, large, **settings):
    lines = train(tmp_path / "recorded", planted, **settings)
    found = recorded(lines)
    step = sum(line["step_ms"] for line in lines) / len(lines) / 1e3
    expected = by_profiler(tmp_path / "profiled", planted, step, monkeypatch, **settings)
    assert all(expected[name] > 0.1 for name in large), expected  # else the delay is not what it is meant to be
    assert found == pytest.approx(expected, abs=0.03)


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_delay_has_its_share(tmp_path, monkeypatch, name):
    check(tmp_path, monkeypatch, PLANTED[name], [LARGE[name]])


@pytest.mark.slow
@pytest.mark.parametrize("pair", list(combinations(PLANTED, 2)), ids=" and ".join)
def test_two_delays_have_their_shares(tmp_path, monkeypatch, pair):
    one, other = pair
    check(tmp_path, monkeypatch, PLANTED[one] | PLANTED[other], [])


@pytest.mark.parametrize("planted", [Planted(spin=4e-3), Planted(sleep=5e-3, spin=2e-3)], ids=["spin", "data and spin"])
def test_a_replayed_step_has_the_shares_of_its_graph(tmp_path, monkeypatch, planted):
    check(tmp_path, monkeypatch, planted, ["compute"], capture="require")


def test_nothing_waits_for_the_device(monkeypatch):
    def refused(*arguments):
        raise AssertionError("the host waits for the device")

    recorder, value = DeviceShares(CudaEvents(torch.device("cuda", 0))), torch.ones(64, 64, device="cuda")
    monkeypatch.setattr(torch.cuda.Event, "synchronize", refused)
    monkeypatch.setattr(torch.cuda, "synchronize", refused)
    taken = []
    with no_waiting():
        for _ in range(3_000):
            recorder.asks_for_batch()
            recorder.has_batch()
            for _ in range(10):
                value @ value
            recorder.ends_step()
            taken.append(recorder.take(1.0))
    lines = [line for line in taken if line]
    assert lines and all(sum(line.values()) == pytest.approx(1, abs=0.001) for line in lines)


def test_memory_and_duty_cycle_of_the_card_are_looked_at():
    use = gpu_memory(torch.device("cuda", 0))
    assert 0 <= use.used < use.limit <= torch.cuda.get_device_properties(0).total_memory
    sensor = DutyCycleSensor(0)
    duty = sensor.read()
    sensor.close()
    assert duty is None or 0 <= duty <= 100


def test_training_is_the_same_with_the_recorder_and_without(tmp_path, monkeypatch):
    losses = []
    for name in ("with", "without"):
        torch.manual_seed(0)
        if name == "without":
            monkeypatch.setattr(assembly, "shares_recorder", lambda device, accumulation: HostShares(False))
        lines = train(tmp_path / name, Planted(sleep=1e-4, spin=1e-4), seed=3)
        losses.append([line["loss"] for line in lines])
    assert losses[0] == losses[1]
