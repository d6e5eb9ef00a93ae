"""A real card: what NVML and nvidia-smi say of it agrees, and with what torch says."""

import shutil
import time

import pytest
import torch

import brim
from brim.sensors.nvidia_smi import NvidiaSmiGpus
from brim.sensors.nvml import NvmlGpus

pytestmark = pytest.mark.gpu
SPIN_S = 1.0


def compute():
    """Keep the card busy for a second with products of matrices."""
    x = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    until = time.monotonic() + SPIN_S
    while time.monotonic() < until:
        for _ in range(50):
            x @ x
        torch.cuda.synchronize()


@pytest.fixture
def nvml():
    pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    gpus = NvmlGpus()
    yield gpus
    gpus.close()


def test_nvml_tells_of_a_busy_card(nvml):
    compute()
    nvml.read()
    compute()
    gpu = nvml.read()[0]
    assert gpu.name and gpu.uuid.startswith("GPU-") and gpu.trouble == ""
    assert 0 < gpu.memory_used <= gpu.memory_total and gpu.duty_cycle > 0
    if torch.cuda.get_device_capability() >= (9, 0):
        assert 0 < gpu.sm <= 100 and 0 < gpu.tensor <= 100 and 0 <= gpu.dram <= 100
    assert gpu.processes is None or all(process.pid > 0 for process in gpu.processes)  # a container may hide its own


def test_nvidia_smi_says_the_same(nvml):
    if shutil.which("nvidia-smi") is None:
        pytest.skip("there is no nvidia-smi")
    compute()
    theirs, ours = NvidiaSmiGpus().read(), [gpu for gpu in nvml.read() if gpu.instance is None]
    assert [(gpu.index, gpu.name, gpu.uuid) for gpu in theirs] == [(gpu.index, gpu.name, gpu.uuid) for gpu in ours]
    for one, other in zip(theirs, ours, strict=True):
        assert one.memory_total == pytest.approx(other.memory_total, abs=2**20)
        assert one.sm_clock_max == other.sm_clock_max and one.throttling is not None


def test_the_utilization_of_the_first_gpu_is_a_whole_number():
    if shutil.which("nvidia-smi") is None:
        pytest.importorskip("pynvml", reason="there is neither nvidia-ml-py nor nvidia-smi")
    compute()
    found = brim.get_gpu_utilization()
    assert type(found) is int and 0 < found <= 100
    assert brim.get_gpu_utilization("cuda:0") is not None and brim.get_gpu_utilization(999) is None
