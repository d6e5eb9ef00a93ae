import importlib
import os
import platform

import pytest
import torch

from brim.hardware import inventory, usable_cores
from brim.sensors.cgroup import cpu_grant

FILE = importlib.import_module("brim.hardware.inventory")  # the room gives this name to the function


@pytest.fixture
def quota(tmp_path, monkeypatch):
    """A machine of eight cores whose cgroup says what the test writes; nothing written means no such file."""
    monkeypatch.setattr(FILE, "cpu_grant", lambda: cpu_grant(tmp_path, tmp_path / "own"))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    return (tmp_path / "cpu.max").write_text


@pytest.mark.parametrize(
    ("text", "cores"),
    [("max 100000", 8), ("200000 100000", 2), ("250000 100000", 3), ("10000 100000", 1), ("9900000 100000", 8)],
)
def test_a_cgroup_quota_limits_the_cores_and_rounds_up(quota, text, cores):
    quota(text)
    assert usable_cores() == cores


def test_a_limit_file_that_says_nothing_is_no_limit(quota):
    quota("")
    assert usable_cores() == 8


def test_without_a_limit_file_the_affinity_mask_decides(quota):
    assert usable_cores() == 8


def test_a_machine_without_affinity_masks_counts_its_cores(quota, monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity")
    assert usable_cores() == 64


def test_the_inventory_says_what_torch_and_the_machine_say():
    machine = inventory()
    assert [gpu.index for gpu in machine.gpus] == list(range(torch.cuda.device_count()))
    assert machine.cores == usable_cores()
    assert (machine.python, machine.torch) == (platform.python_version(), torch.__version__)
    assert machine.has_mps == torch.backends.mps.is_available()


@pytest.mark.gpu
def test_the_inventory_names_each_gpu_and_its_memory():
    gpu = inventory().gpus[0]
    assert gpu.name == torch.cuda.get_device_name(0)
    assert gpu.memory == pytest.approx(torch.cuda.mem_get_info(0)[1], rel=0.02)
