import multiprocessing
import multiprocessing.process
import os
import subprocess
import sys
import time

from brim.doctor.watching.started_processes import StartedProcesses, children_seconds


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


def test_children_have_their_seconds_while_they_live():
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as waits:
        with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as computes:
            while children_seconds()[computes.pid] < 0.5:
                time.sleep(0.01)
            assert children_seconds()[waits.pid] < 0.2
            computes.kill()
        waits.stdin.close()
        os.waitid(os.P_PID, waits.pid, os.WEXITED | os.WNOWAIT)
        assert waits.pid not in children_seconds() and computes.pid not in children_seconds()
