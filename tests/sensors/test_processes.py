import os
import subprocess
import sys

import pytest
from helpers.waiting import wait_until

from brim.sensors import processes
from brim.sensors.processes import command_of, open_files, python_processes


@pytest.fixture
def holder(tmp_path):
    """Another process that has a file open."""
    path = tmp_path / "events.jsonl"
    program = "import sys, time\nfile = open(sys.argv[1], 'a')\nwhile True: time.sleep(100)"
    started = subprocess.Popen([sys.executable, "-c", program, str(path)])
    wait_until(path.exists, started)
    yield started.pid, path
    started.kill()
    started.wait()


@pytest.mark.slow
def test_another_process_is_seen_with_its_command_and_its_files(holder):
    pid, path = holder
    assert pid in python_processes() and path in open_files(pid)
    assert command_of(pid).startswith(os.path.basename(sys.executable)) and command_of(pid).endswith(str(path))  # noqa: PTH119


@pytest.mark.slow
def test_a_process_that_is_gone_has_neither():
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    assert command_of(gone.pid) == "" and open_files(gone.pid) == []


@pytest.mark.slow
def test_processes_of_other_programs_are_passed_over():
    other = subprocess.Popen(["sleep", "100"])
    try:
        assert other.pid not in python_processes() and os.getpid() in python_processes()
    finally:
        other.kill()
        other.wait()


def test_a_system_without_proc_tells_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "PROC", tmp_path / "none")
    assert python_processes() == [] and open_files(os.getpid()) == [] and command_of(os.getpid()) == ""
