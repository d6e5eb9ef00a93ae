import pytest
import torch

from brim.hardware import memory_use
from brim.hardware.memory_use import memory_in_use

CPU = torch.device("cpu")


def test_on_a_gpu_it_is_what_torch_holds(monkeypatch):
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 5)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 7)
    assert memory_in_use(torch.device("cuda")) == {"memory_allocated": 5, "memory_reserved": 7}


def test_on_the_cpu_it_is_what_the_process_holds():
    before = memory_in_use(CPU)["memory_process"]
    held = torch.ones(32 << 20)  # more than malloc takes from what it has
    assert memory_in_use(CPU)["memory_process"] >= before + held.nbytes // 2


@pytest.mark.parametrize("content", [None, "", "one two three"])
def test_where_the_system_does_not_say_there_is_no_number(monkeypatch, tmp_path, content):
    if content is not None:
        (tmp_path / "statm").write_text(content)
    monkeypatch.setattr(memory_use, "PROCESS_PAGES", tmp_path / "statm")
    assert memory_in_use(CPU) == {}
