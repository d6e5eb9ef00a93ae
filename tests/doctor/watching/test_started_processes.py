import multiprocessing
import multiprocessing.process
import os
import subprocess
import sys

from brim.doctor.watching.started_processes import StartedProcesses


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
