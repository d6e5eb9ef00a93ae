import multiprocessing
import multiprocessing.process
import subprocess
import sys

from brim.doctor.watching.started_processes import StartedProcesses


def test_processes_are_counted_however_they_are_started(monkeypatch):
    monkeypatch.setattr(multiprocessing.process.BaseProcess, "start", multiprocessing.process.BaseProcess.start)
    monkeypatch.setattr(subprocess.Popen, "__init__", subprocess.Popen.__init__)
    started = StartedProcesses()
    started.install()
    subprocess.run([sys.executable, "-c", ""], check=True)
    process = multiprocessing.get_context("fork").Process(target=int)
    process.start()
    process.join()
    assert started.count == 2
