import subprocess
import sys

import pytest

from brim.sensors import nvidia_smi
from brim.sensors.gpu_reading import GpuProcess
from brim.sensors.nvidia_smi import NvidiaSmiGpus, run_nvidia_smi

MIB = 2**20
GPU = "0, NVIDIA H200, GPU-11, 62464, 143771, 97, 512.30, 700.00, 66, 1755, 1980, 5, 16"
BARE = "1, Tesla M60, GPU-22, [N/A], 8129, [Not Supported], [N/A], [N/A], [Unknown Error], [N/A], [N/A], [N/A], [N/A]"


class Command:
    """nvidia-smi of some version: what it prints for a query, and the names of fields that it knows."""

    def __init__(self, reasons="clocks_event_reasons.active", rows=(GPU, BARE), apps=""):
        self.reasons, self.rows, self.apps, self.asked = reasons, rows, apps, []

    def __call__(self, arguments):
        (query,) = arguments
        self.asked.append(query)
        if query.startswith("--query-compute-apps"):
            return self.apps
        fields = query.partition("=")[2].split(",")
        if any("reasons" in field and field != self.reasons for field in fields):
            return None
        if fields == ["uuid", "utilization.gpu"]:
            return "".join(f"{row.split(', ')[2]}, {row.split(', ')[5]}\n" for row in self.rows)
        reasons = ", 0x0000000000000024" if fields[-1] == self.reasons else ""
        return "".join(f"{row}{reasons}\n" for row in self.rows)


@pytest.fixture(autouse=True)
def commands(monkeypatch):
    monkeypatch.setattr(nvidia_smi, "command_of", lambda pid: "python train.py" if pid == 4242 else "")


def test_what_the_command_tells():
    apps = "GPU-11, 4242, 59000, /usr/bin/python\nGPU-11, 17, [N/A], a, b\nnothing here\nGPU-22, x, 1, y\n"
    gpu, bare = NvidiaSmiGpus(Command(apps=apps)).read()
    assert (gpu.index, gpu.name, gpu.uuid, gpu.duty_cycle) == (0, "NVIDIA H200", "GPU-11", 97)
    assert (gpu.memory_used, gpu.memory_total) == (62464 * MIB, 143771 * MIB)
    assert (gpu.power, gpu.power_limit, gpu.temperature, gpu.sm_clock, gpu.sm_clock_max) == (512.3, 700, 66, 1755, 1980)
    assert gpu.throttling == ("power cap", "thermal limit of the driver")
    assert (gpu.pcie_generation, gpu.pcie_width, gpu.sm, gpu.pcie_in) == (5, 16, None, None)
    assert gpu.processes == (GpuProcess(4242, 59000 * MIB, "python train.py"), GpuProcess(17, None, "a, b"))
    assert (bare.memory_used, bare.memory_total, bare.duty_cycle, bare.power) == (None, 8129 * MIB, None, None)
    assert bare.processes == ()


@pytest.mark.parametrize("name", ["clocks_event_reasons.active", "clocks_throttle_reasons.active", "neither"])
def test_the_name_that_a_version_knows_is_found_and_kept(name):
    command = Command(name)
    gpus = NvidiaSmiGpus(command)
    assert gpus.read()[0].throttling == (None if name == "neither" else ("power cap", "thermal limit of the driver"))
    tries = len(command.asked)
    gpus.read()
    assert len(command.asked) == tries + 2  # one for the cards and one for their processes


@pytest.mark.parametrize("rows", [(), ("No devices were found",), ("[GPU is lost], a, b",)])
def test_an_answer_without_cards_is_none(rows):
    assert NvidiaSmiGpus(Command(rows=rows)).read() == ()


def test_processes_that_may_not_be_seen_are_not_none_at_all():
    assert NvidiaSmiGpus(Command(apps=None)).read()[0].processes is None


def test_utilization_is_one_query():
    command = Command()
    assert NvidiaSmiGpus(command).utilization() == [("GPU-11", 97), ("GPU-22", None)]
    assert len(command.asked) == 1


def test_a_command_that_fails_hangs_or_is_not_there_answers_none(monkeypatch):
    monkeypatch.setattr(nvidia_smi, "COMMAND", "/nonexistent/nvidia-smi")
    assert run_nvidia_smi([]) is None
    monkeypatch.setattr(nvidia_smi, "COMMAND", sys.executable)  # which knows no --format
    assert run_nvidia_smi([]) is None

    def hang(*arguments, **settings):
        raise subprocess.TimeoutExpired("nvidia-smi", settings["timeout"])

    monkeypatch.setattr(subprocess, "run", hang)
    assert run_nvidia_smi([]) is None
    assert NvidiaSmiGpus().read() == () and NvidiaSmiGpus().utilization() == []
