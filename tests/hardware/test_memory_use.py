import os

import pytest
import torch

from brim.hardware import memory_use
from brim.hardware.memory_use import memory_in_use

CPU = torch.device("cpu")


def test_on_a_gpu_it_is_what_torch_holds(monkeypatch):
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 5)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 7)
    assert memory_in_use(torch.device("cuda")) == {"memory_allocated": 5, "memory_reserved": 7}


def test_on_the_cpu_it_is_what_the_process_holds(monkeypatch, tmp_path):
    (tmp_path / "statm").write_text("900 300 80 1 0 200 0\n")  # pages: of all, of those in memory, of those shared, ...
    monkeypatch.setattr(memory_use, "PROCESS_PAGES", tmp_path / "statm")
    assert memory_in_use(CPU) == {"memory_process": 300 * os.sysconf("SC_PAGE_SIZE")}


@pytest.mark.skipif(not memory_use.PROCESS_PAGES.exists(), reason="the system does not say what a process holds")
def test_this_process_holds_some():
    # How much more after an allocation is not asked: other threads free memory, and the kernel takes back what is idle.
    assert 0 < memory_in_use(CPU)["memory_process"] < 1 << 50


@pytest.mark.parametrize("content", [None, "", "one two three"])
def test_where_the_system_does_not_say_there_is_no_number(monkeypatch, tmp_path, content):
    if content is not None:
        (tmp_path / "statm").write_text(content)
    monkeypatch.setattr(memory_use, "PROCESS_PAGES", tmp_path / "statm")
    assert memory_in_use(CPU) == {}
