import json
from dataclasses import asdict

import pytest
from helpers.clock import Clock

from brim.sensors import host_reading
from brim.sensors.cgroup import CpuGrant
from brim.sensors.host_reading import HostSensor, cpu_ticks, memory_of_machine

GIB = 2**30


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine of 100 ticks a second, as its files say."""
    statistics, memory = tmp_path / "stat", tmp_path / "meminfo"
    monkeypatch.setattr(host_reading, "STATISTICS", statistics)
    monkeypatch.setattr(host_reading, "MEMORY", memory)
    memory.write_text(f"MemTotal: {16 * 2**20} kB\nMemAvailable: {12 * 2**20} kB\n")

    def tick(busy, idle):
        # user nice system idle iowait irq softirq steal guest guest_nice
        statistics.write_text(f"cpu  {busy} 0 0 {idle} 5 0 0 0 {busy} 0\ncpu0 1 1 1\n")

    tick(100, 300)
    return tick


def test_how_busy_the_machine_was_between_two_looks(machine):
    sensor = HostSensor(lambda: None, lambda: None)
    first = sensor.read()
    assert first.cpu is None and (first.memory_used, first.memory_total, first.is_limited) == (4 * GIB, 16 * GIB, False)
    machine(175, 325)
    second = sensor.read()
    assert second.cpu == 75.0 and second.throttled is None
    assert json.loads(json.dumps(asdict(second)))["cpu"] == 75.0


def test_within_a_quota_it_is_the_granted_time_that_counts(machine):
    grants = iter([CpuGrant(0.5, 10.0, 100, 20), CpuGrant(0.5, 10.5, 120, 25), CpuGrant(0.5, 10.5, 120, 25)])
    clock = Clock()
    sensor = HostSensor(lambda: next(grants), lambda: (2 * GIB, GIB), clock.monotonic)
    assert sensor.read().cores == 0.5
    clock.sleep(2.0)
    found = sensor.read()
    assert (found.cpu, found.throttled) == (50.0, 25.0)  # half a second of the one that was granted
    assert (found.memory_used, found.memory_total, found.is_limited) == (GIB, 2 * GIB, True)
    clock.sleep(2.0)
    assert (sensor.read().cpu, sensor._last is None) == (0.0, False)


def test_two_looks_within_a_tick_have_no_use_and_the_next_one_has(machine):
    sensor = HostSensor(lambda: None, lambda: None)
    sensor.read()
    assert sensor.read().cpu is None
    machine(175, 325)
    assert sensor.read().cpu == 75.0


def test_two_looks_at_a_quota_within_a_tick_have_no_use_and_the_next_one_has(machine):
    grants = iter([CpuGrant(0.5, 10.0, 100, 20), CpuGrant(0.5, 10.0, 100, 20), CpuGrant(0.5, 10.5, 120, 25)])
    clock = Clock()
    sensor = HostSensor(lambda: next(grants), lambda: None, clock.monotonic)
    sensor.read()
    found = sensor.read()
    assert (found.cpu, found.throttled) == (None, 0.0)
    clock.sleep(2.0)
    assert sensor.read().cpu == 50.0


def test_a_limit_above_what_the_machine_has_is_none(machine):
    found = HostSensor(lambda: None, lambda: (64 * GIB, GIB)).read()
    assert (found.memory_total, found.is_limited) == (16 * GIB, False)


def test_a_system_without_these_files_tells_nothing(tmp_path, monkeypatch):
    for name in ("STATISTICS", "MEMORY"):
        monkeypatch.setattr(host_reading, name, tmp_path / "none")
    assert cpu_ticks() is None and memory_of_machine() == (None, None)
    sensor = HostSensor(lambda: None, lambda: None)
    sensor.read()
    assert sensor.read().cpu is None


def test_this_machine_can_be_read():
    sensor = HostSensor()
    sensor.read()
    found = sensor.read()
    assert 0 < found.cores <= found.machine_cores and found.memory_used is not None
