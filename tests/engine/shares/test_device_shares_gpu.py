"""Delays that are planted in trainings on a GPU: what a run records of them, beside what must come of them.

The truth is reckoned from what the same run notes of when the host did what; how long what it launches takes the device
is known, since it was planted, and the device does one thing after the other. A profiler would slow the host down.
"""

import json
import time
from dataclasses import dataclass
from itertools import combinations

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import brim
from brim.engine.captured.host.waiting import no_waiting
from brim.engine.run import assembly
from brim.engine.shares.device_events import CudaEvents
from brim.engine.shares.device_shares import DeviceShares
from brim.engine.shares.host_shares import HostShares
from brim.engine.shares.recorded_shares import gpu_memory
from brim.intervals import difference, intersection, length, union
from brim.sensors.duty_cycle import DutyCycleSensor

pytestmark = pytest.mark.gpu

NAMES = ("data_wait", "copy", "compute", "sync", "launch")
STEPS, LOG_EVERY = 400, 20
HELD = 60  # a step that is held back by the test, to see how long the device takes for it
FIRST, LAST = 200, 395  # the steps that are looked at
LATENCY = 5e-6  # seconds from launching a kernel to its beginning


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
    """Launches what is planted, and notes when: ``parts`` are (what, from, until) by the host's clock."""

    def __init__(self, planted, parts=None):
        self.planted, self.parts = planted, parts
        self.tiny = torch.zeros(1, device="cuda")

    def note(self, what, start):
        if self.parts is not None:
            self.parts.append((what, start, time.perf_counter()))

    def spin(self):
        if self.planted.spin:
            now = time.perf_counter()
            torch.cuda._sleep(int(self.planted.spin / 2 * CYCLES))
            self.note("spin", now)

    def __call__(self, model, batch):
        start = time.perf_counter()
        for _ in range(self.planted.launches):
            self.tiny.add_(1)
        self.note("launches", start)
        self.spin()
        if self.planted.reads:
            start = time.perf_counter()
            self.tiny.item()
            time.sleep(3e-3)
            self.note("read", start)
        self.spin()
        return model(batch[:, :8]).square().mean()


CYCLES = 1.5e9  # of a spinning kernel; how long that takes is measured


def event():
    made = torch.cuda.Event(enable_timing=True)
    made.record()
    return made


def seconds_of(launch):
    """How long the device takes for something that is launched while it does something else."""
    launch()
    torch.cuda.synchronize()
    torch.cuda._sleep(int(0.04 * CYCLES))
    start = event()
    launch()
    end = event()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / 1e3


def tiny_kernels(count):
    tiny = torch.zeros(1, device="cuda")
    return lambda: [tiny.add_(1) for _ in range(count)]


class NotedShares(DeviceShares):
    """The recorder, which notes by the host's clock when it was called, when copies ran and when it held back."""

    def __init__(self):
        super().__init__(CudaEvents(torch.device("cuda", 0)))
        self.steps, self.unread, self.copies, self.held = [], [], [], []
        self.base = self.zero = None
        hold = self._events.hold
        self._events.hold = lambda seconds: (self.held.append((len(self.steps), time.perf_counter())), hold(seconds))

    def asks_for_batch(self):
        if len(self.steps) == FIRST:
            torch.cuda.synchronize()
            self.base, self.zero = event(), time.perf_counter()
        self.steps.append({"asked": time.perf_counter()})
        super().asks_for_batch()

    def got_batch(self):
        self.steps[-1]["fed"] = time.perf_counter()
        return super().got_batch()

    def ends_step(self):
        self.steps[-1]["end"] = time.perf_counter()
        super().ends_step()
        while self.unread and self.unread[0][1].query():
            start, end = (self.zero + self.base.elapsed_time(each) / 1e3 for each in self.unread.pop(0))
            self.copies.append((start, end))

    def note_copy(self, start, end):
        if self.base is not None:
            self.unread.append((start, end))
        super().note_copy(start, end)


class OneHeld(HostShares):
    """In the recorder's place: holds one step back."""

    def __init__(self):
        super().__init__(computes_here=False)
        self.asked, self.events = 0, []

    def asks_for_batch(self):
        super().asks_for_batch()
        if self.asked == HELD:
            torch.cuda._sleep(int(0.04 * CYCLES))
        if HELD <= self.asked <= HELD + 1:
            self.events.append(event())
        self.asked += 1


def device_seconds(folder, planted, monkeypatch, **settings):
    """How long the device takes for all kernels of a step."""
    recorder = OneHeld()
    with monkeypatch.context() as patch:
        patch.setattr(assembly, "shares_recorder", lambda device, accumulation: recorder)
        train(folder, planted, HELD + 3, **settings)
    torch.cuda.synchronize()
    return recorder.events[0].elapsed_time(recorder.events[1]) / 1e3


def reckoned(notes, parts, planted, rest, replayed):
    """The shares that the steps must have. ``rest``: seconds of kernels beside what is planted; ``replayed``: of a
    whole step that is launched at once."""
    steps, copies, held = notes.steps, union(notes.copies), {number for number, _ in notes.held}
    spin, tiny = (
        seconds_of(run) for run in (lambda: torch.cuda._sleep(int(planted.spin / 2 * CYCLES)), tiny_kernels(400))
    )
    busy, waits, free = [], [], 0.0

    def launch(host, seconds, ready):
        nonlocal free
        start = max(free, host + LATENCY, ready)
        free = start + seconds
        busy.append((start, free))

    area = []
    for number, step in enumerate(steps[FIRST : LAST + 1], start=FIRST + 1):
        if not {number - 2, number - 1, number} & held and number > FIRST + 3:
            area.append((step["asked"], steps[number]["asked"]))
        ready = max((end for start, end in copies if start <= step["fed"] + 1e-4), default=0.0)
        mine = [part for part in parts if step["fed"] <= part[1] <= step["end"]]
        if not mine:
            launch((step["fed"] + step["end"]) / 2, replayed, ready)
        for what, start, end in mine:
            if what == "spin":
                launch(start, spin, ready)
            elif what == "read":
                waits.append((start, end))
            else:
                for place in range(planted.launches):
                    launch(start + (end - start) * place / planted.launches, tiny / 400, ready)
        last = mine[-1][2] if mine else step["end"]
        for place in range(20 if mine else 0):
            launch(last + (step["end"] - last) * place / 20, rest / 20, ready)
    idle = difference(area, union(busy))
    copying = intersection(idle, copies)
    idle = difference(idle, copying)
    data = intersection(idle, [(step["asked"], step["fed"]) for step in steps[FIRST : LAST + 1]])
    idle = difference(idle, data)
    sync = intersection(idle, union(waits))
    found = [length(data), length(copying), length(intersection(area, union(busy))), length(sync)]
    shares = [each / length(area) for each in found]
    return dict(zip(NAMES, [*shares, 1 - sum(shares)], strict=True))


def train(folder, planted, steps=STEPS, loss=None, **settings):
    """The lines of the log, from the middle on."""
    trainer = brim.Trainer(
        nn.Linear(8, 1), DataLoader(Batches(planted), batch_size=None), loss_fn=loss or Loss(planted), device="cuda",
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


def check(tmp_path, monkeypatch, planted, large, together=False, **settings):
    """``together``: what is idle after a read cannot be told from slow launches where those before it were others."""
    notes, parts = NotedShares(), None if settings else []
    with monkeypatch.context() as patch:
        patch.setattr(assembly, "shares_recorder", lambda device, accumulation: notes)
        found = recorded(train(tmp_path / "recorded", planted, loss=Loss(planted, parts), **settings))
    rest = device_seconds(tmp_path / "rest", planted if settings else Planted(), monkeypatch, **settings)
    expected = reckoned(notes, parts or [], planted, rest, rest)
    print("found", found, "expected", expected)
    assert all(expected[name] > 0.1 for name in large), expected  # else the delay is not what it is meant to be
    for shares in (found, expected) if together else ():
        shares["launch"] += shares.pop("sync")
    assert found == pytest.approx(expected, abs=0.03)  # of a GPU that nothing else uses


@pytest.mark.usefixtures("gpu_to_itself")
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_delay_has_its_share(tmp_path, monkeypatch, name):
    check(tmp_path, monkeypatch, PLANTED[name], [LARGE[name]])


@pytest.mark.slow
@pytest.mark.usefixtures("gpu_to_itself")
@pytest.mark.parametrize("pair", list(combinations(PLANTED, 2)), ids=" and ".join)
def test_two_delays_have_their_shares(tmp_path, monkeypatch, pair):
    one, other = pair
    check(tmp_path, monkeypatch, PLANTED[one] | PLANTED[other], [], together=pair == ("a read", "empty launches"))


@pytest.mark.usefixtures("gpu_to_itself")
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
            recorder.got_batch()
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
