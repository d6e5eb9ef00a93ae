import os
import subprocess
import sys
from pathlib import Path

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


def process(folder, pid, program, command=b"", files=()):
    """A process as /proc has it."""
    (folder / pid / "fd").mkdir(parents=True)
    (folder / pid / "exe").symlink_to(program)
    (folder / pid / "cmdline").write_bytes(command)
    for number, file in enumerate(files):
        (folder / pid / "fd" / str(number)).symlink_to(file)


def test_programs_in_which_python_runs_are_told_from_others(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "PROC", tmp_path)
    process(tmp_path, "30", "/usr/bin/python3.12")
    process(tmp_path, "4", "/opt/Python.app/Python")
    process(tmp_path, "5", "/bin/sleep")
    (tmp_path / "6").mkdir()  # of the kernel, which has no program
    (tmp_path / "self").mkdir()
    assert python_processes() == [4, 30]


def test_a_command_has_the_name_of_its_program_and_any_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "PROC", tmp_path)
    process(tmp_path, "4", "python", b"/usr/bin/python\0train.py\0--name=\xff\0")
    assert command_of(4) == "python train.py --name=\ufffd"


def test_open_files_are_those_that_are_there(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "PROC", tmp_path)
    process(tmp_path, "4", "python", files=["/runs/a/events.jsonl", "pipe:[12]", "/tmp/gone (deleted)"])
    (tmp_path / "4" / "fd" / "9").touch()  # no link: closed meanwhile
    assert open_files(4) == [Path("/runs/a/events.jsonl")]


def test_this_process_is_seen_with_what_it_has_open(tmp_path):
    if not processes.PROC.exists():
        pytest.skip("the system has no /proc")
    with (tmp_path / "events.jsonl").open("w"):
        assert os.getpid() in python_processes() and tmp_path / "events.jsonl" in open_files(os.getpid())
    assert tmp_path / "events.jsonl" not in open_files(os.getpid())


def test_a_system_without_proc_tells_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "PROC", tmp_path / "none")
    assert python_processes() == [] and open_files(os.getpid()) == [] and command_of(os.getpid()) == ""
