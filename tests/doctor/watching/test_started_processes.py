import multiprocessing
import multiprocessing.process
import os
import subprocess
import sys

from brim.doctor.watching.started_processes import StartedProcesses, living_children


def test_processes_are_counted_however_they_are_started(monkeypatch):
    monkeypatch.setattr(multiprocessing.process.BaseProcess, "start", multiprocessing.process.BaseProcess.start)
    monkeypatch.setattr(subprocess.Popen, "__init__", subprocess.Popen.__init__)
    monkeypatch.setattr(os, "fork", os.fork)
    started = StartedProcesses()
    started.install()
    subprocess.run([sys.executable, "-c", ""], check=True)
    process = multiprocessing.get_context("fork").Process(target=int)
    process.start()
    process.join()
    assert started.count == 3  # once by its start, and once by its fork
    if (child := os.fork()) == 0:
        os._exit(0)
    os.waitpid(child, 0)
    assert started.count == 4


def test_children_are_counted_while_they_live():
    before = living_children()
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as child:
        assert living_children() == before + 1
        child.stdin.close()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert living_children() == before
