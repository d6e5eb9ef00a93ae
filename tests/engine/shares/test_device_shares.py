"""Trainings on a simulated GPU: what the recorder says of them, and what the doctor makes of a trace of them."""

from collections import deque
from dataclasses import dataclass
from itertools import combinations

import pytest
from helpers.simulated_gpu import SimulatedGpu

from brim.doctor.trace.events import Span
from brim.doctor.trace.reduce import reduce_events
from brim.engine.shares.device_shares import HOLD_EVERY, DeviceShares

NAMES = ("data_wait", "copy", "compute", "sync", "launch")
LOG_EVERY = 50


@dataclass
class Training:
    """Seconds that are planted in a step. ``reads``: a number, in the middle of its kernels."""

    data: float = 0.0  # making a batch takes the host so long
    copy: float = 0.0
    kernel: float = 0.0
    launches: int = 0  # of kernels that take two microseconds
    passes: int = 1  # in which they are launched
    later_launches: int = 0  # after the read
    launch: float = 5e-6  # of each, on the host
    reads: bool = False
    after_read: float = 0.0  # of Python
    between: float = 20e-6
    before: float = 0.0  # of Python, in a step before its first kernel; a fifth of it after it

    def run(self, gpu: SimulatedGpu, steps: int, recorder: DeviceShares | None = None) -> list[dict[str, float]]:
        """Shares of each line, as the loop of a run asks for them; batches are copied one ahead."""
        lines, sent = [], deque()
        for step in range(steps):
            if recorder is not None:
                recorder.asks_for_batch()
            began = gpu.host
            while len(sent) < 2:
                gpu.python(self.data)
                if self.copy:
                    sent.append(gpu.copy(self.copy))
                    if recorder is not None:
                        recorder.note_copy(*sent[-1])
                else:
                    sent.append((0.0, 0.0))
            gpu.wait_for_copy(sent.popleft()[1])
            gpu.seen.data.append(Span("enumerate(DataLoader)", began, gpu.host))
            if recorder is not None:
                recorder.got_batch()
            self._step(gpu, recorder)
            if recorder is not None:
                recorder.ends_step()
            gpu.seen.steps.append(gpu.host)
            if step % LOG_EVERY == LOG_EVERY - 1:
                self._read(gpu, recorder)
                lines += [] if recorder is None else [recorder.take(1.0)]
            gpu.python(self.between)
        gpu.seen.end = max(gpu.host, gpu.busy_until)
        return lines

    def _step(self, gpu: SimulatedGpu, recorder: DeviceShares | None) -> None:
        gpu.python(self.before)
        for number in range(self.passes):
            for _ in range(self.launches // self.passes):
                gpu.launch(2e-6, takes=self.launch)
            if number + 1 < self.passes and recorder is not None:
                recorder.ends_pass()
        gpu.launch(self.kernel / 2)
        gpu.python(self.before / 5)
        if self.reads:
            self._read(gpu, recorder)
            gpu.python(self.after_read)
        for _ in range(self.later_launches):
            gpu.launch(2e-6, takes=self.launch)
        gpu.launch(self.kernel / 2)

    def _read(self, gpu: SimulatedGpu, recorder: DeviceShares | None) -> None:
        begin = recorder.wait_begins() if recorder is not None and recorder.is_sampling else None
        gpu.read()
        if begin is not None:
            recorder.wait_ends(begin, has_waited=True)


def doctors_shares(training: Training, steps: int = 60) -> dict[str, float]:
    gpu = SimulatedGpu()
    training.run(gpu, steps)
    profile = reduce_events(gpu.seen)
    parts = (profile.data, profile.copy, profile.compute, profile.sync, profile.launch)
    return dict(zip(NAMES, (part / profile.step for part in parts), strict=True))


def recorded_shares(training: Training, steps: int = 600) -> tuple[dict[str, float], SimulatedGpu]:
    """The mean over the lines of the second half."""
    gpu = SimulatedGpu()
    lines = [line for line in training.run(gpu, steps, DeviceShares(gpu, clock=gpu.clock)) if line]
    lines = lines[len(lines) // 2 :]
    assert lines
    for line in lines:
        assert sum(line.values()) == pytest.approx(1, abs=0.001)
    return {name: sum(line[f"share/{name}"] for line in lines) / len(lines) for name in NAMES}, gpu


PLANTED = {
    "a sleep in the data set": {"data": 3e-3},
    "a copy": {"copy": 4e-3},
    "a spin kernel": {"kernel": 5e-3},
    "a read": {"reads": True, "after_read": 2e-3, "kernel": 3e-3},
    "empty launches": {"launches": 200, "launch": 10e-6},
}
PAIRS = [*((name,) for name in PLANTED), *combinations(PLANTED, 2)]


@pytest.mark.matrix(6)
@pytest.mark.parametrize("planted", PAIRS, ids=" and ".join)
def test_shares_are_those_that_the_doctor_finds(planted):
    arguments = {}
    for name in planted:
        arguments |= PLANTED[name] if name != "a read" else {**PLANTED[name], **arguments}
    training = Training(**arguments)
    expected, (found, _) = doctors_shares(training), recorded_shares(training)
    assert found == pytest.approx(expected, abs=0.03)


def test_slow_launches_after_a_read_are_told_from_the_gap_after_it_by_the_pace_of_those_before_it():
    training = Training(kernel=1e-3, reads=True, after_read=1e-3, launches=150, later_launches=150, launch=10e-6)
    assert recorded_shares(training)[0] == pytest.approx(doctors_shares(training), abs=0.03)


@pytest.mark.parametrize("data", [0.0, 6e-3])
def test_a_gap_after_a_read_is_the_reads_though_the_step_begins_with_python(data):
    training = Training(kernel=2.3e-3, reads=True, after_read=3e-3, before=150e-6, data=data, between=4e-4)
    assert recorded_shares(training)[0] == pytest.approx(doctors_shares(training), abs=0.03)


def test_where_there_are_none_before_it_the_two_together_are_right():
    training = Training(kernel=3e-3, reads=True, after_read=2e-3, later_launches=100, launch=10e-6)
    found, expected = recorded_shares(training)[0], doctors_shares(training)
    for each in (found, expected):
        each["idle"] = each.pop("sync") + each.pop("launch")
    assert found == pytest.approx(expected, abs=0.03)


def test_a_step_that_is_launched_for_longer_than_the_device_can_be_held_back_is_measured_by_its_passes():
    training = Training(launches=2400, launch=10e-6, passes=3)
    assert recorded_shares(training, steps=150)[0] == pytest.approx(doctors_shares(training, steps=10), abs=0.03)


def test_a_device_that_is_always_behind_computes_all_the_time():
    found, _ = recorded_shares(Training(kernel=10e-3))
    assert found["compute"] == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("planted", [{"launches": 200, "launch": 10e-6}, {"kernel": 5e-3}, {"data": 2e-3}])
def test_nothing_waits_for_the_device_and_it_is_hardly_ever_held_back(planted):
    steps = 20_000 if "launches" not in planted else 1_000
    gpu = SimulatedGpu()
    began = gpu.host
    Training(**planted).run(gpu, steps, DeviceShares(gpu, clock=gpu.clock))
    assert gpu.synchronised == steps // LOG_EVERY  # the losses that the loop itself reads
    assert gpu.held > 0
    assert gpu.held <= (gpu.host - began) / HOLD_EVERY + 6 * 0.01


def test_events_are_used_again():
    gpu = SimulatedGpu()
    Training(data=1e-3, kernel=1e-3).run(gpu, 2_000, recorder := DeviceShares(gpu, clock=gpu.clock))
    recorder.forget()
    assert gpu.records > 100 and gpu.records - gpu.given_back <= 40


def test_a_replayed_step_is_told_from_the_eager_one_before_it():
    gpu = SimulatedGpu()
    recorder = DeviceShares(gpu, clock=gpu.clock)
    eager = Training(launches=300, launch=10e-6).run(gpu, 600, recorder)
    replayed = Training(kernel=600e-6, between=300e-6).run(gpu, 6_000, recorder)
    assert eager[-1]["share/compute"] == pytest.approx(0.2, abs=0.03)
    assert [line for line in replayed if line][-1]["share/compute"] == pytest.approx(1, abs=0.03)


@pytest.mark.matrix(1)
@pytest.mark.parametrize("planted", [{}, {"reads": True, "after_read": 2e-3}], ids=["none", "one"])
def test_a_first_step_with_more_waits_than_later_ones_does_not_decide_how_those_are_measured(planted):
    """Memory is asked for, kernels are loaded: the first step waits where later ones do not."""
    gpu = SimulatedGpu()
    recorder = DeviceShares(gpu, clock=gpu.clock)
    first = Training(reads=True, after_read=1e-3, kernel=1e-3, later_launches=300, launch=10e-6)
    first.run(gpu, 2, recorder)
    training = Training(launches=300, launch=10e-6, kernel=2e-3, **planted)
    lines = [line for line in training.run(gpu, 1_200, recorder) if line]
    expected = doctors_shares(training)
    assert {name: lines[-1][f"share/{name}"] for name in NAMES} == pytest.approx(expected, abs=0.03)


def test_a_host_that_becomes_much_quicker_is_measured_again_soon():
    """In the first second of a process all is slow."""
    gpu = SimulatedGpu()
    recorder = DeviceShares(gpu, clock=gpu.clock)
    Training(launches=100, launch=50e-6).run(gpu, 600, recorder)
    training = Training(launches=100, launch=8e-6, data=4e-3)
    lines = training.run(gpu, 300, recorder)
    assert {name: lines[-1][f"share/{name}"] for name in NAMES} == pytest.approx(doctors_shares(training), abs=0.03)
    assert all(lines[1:])


def test_what_is_between_steps_is_left_out():
    gpu = SimulatedGpu()
    recorder = DeviceShares(gpu, clock=gpu.clock)
    training = Training(kernel=2e-3)
    for _ in range(40):
        training.run(gpu, 10, recorder)
        gpu.python(5.0)  # an evaluation
        recorder.pause()
    line = recorder.take(1.0)
    assert line["share/compute"] > 0.9


def test_a_line_without_a_sampled_step_has_no_shares():
    gpu = SimulatedGpu()
    assert DeviceShares(gpu, clock=gpu.clock).take(1.0) == {}
