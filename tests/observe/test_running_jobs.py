import json
import os
import subprocess
import sys
import time

import pytest
from helpers.clock import Clock
from helpers.runs import lock_run, write_run
from helpers.waiting import wait_until

from brim.observe import running_jobs
from brim.observe.running_jobs import SEARCH_SECONDS, JobSearch, RunningJob, look_at
from brim.observe.watch_view import job_facts

GIB = 2**30
LINES = [
    {"step": 40, "epoch": 1, "loss": 0.6, "step_ms": 50.0, "samples_per_second": 640.0, "memory_reserved": 3 * GIB},
    {"step": 50, "epoch": 2, "loss": 0.5, "step_ms": 25.0, "samples_per_second": 1280.0},
    {"step": 50, "epoch": 2, "eval/loss": 0.4},
]
FORECASTS = [{"kind": "memory", "forecast": {"reserved": size}} for size in (9 * GIB, 4 * GIB)]


@pytest.fixture
def run(tmp_path):
    return write_run(tmp_path / "runs" / "run", LINES, FORECASTS, about={"model": "Net", "planned_steps": 200})


@pytest.fixture
def alone(monkeypatch):
    """Other trainings on this machine are not looked at."""
    monkeypatch.setattr(running_jobs, "python_processes", list)


def test_how_far_a_job_is_and_how_it_goes(run):
    lock_run(run)
    job = look_at(run, {7})
    assert (job.folder, job.model, job.processes) == (run, "Net", tuple(sorted({7, os.getpid()})))
    assert (job.step, job.planned_steps, job.epoch, job.loss) == (50, 200, 2, 0.5)
    assert (job.steps_per_second, job.samples_per_second, job.seconds_left) == (40.0, 1280.0, 3.75)
    assert (job.memory, job.forecast) == (3 * GIB, 4 * GIB)  # the last that were told
    assert job.quiet > 3600
    assert json.loads(json.dumps(job.as_json()))["seconds_left"] == 3.75


def test_a_job_that_has_written_nothing_yet_leaves_everything_open(tmp_path):
    run = write_run(tmp_path / "run")
    lock_run(run)
    job = look_at(run, set())
    assert job == RunningJob(run, (os.getpid(),), host="") and job.seconds_left is None


def test_a_run_that_nobody_trains_is_no_job(run):
    assert look_at(run, {os.getpid()}) is None
    lock_run(run, started="12")
    assert look_at(run, set()) is None


def test_the_process_of_another_machine_is_not_taken_for_one_of_this(run):
    lock_run(run, machine="another", host="node7")
    job = look_at(run, set())
    assert (job.host, job.processes, job.step) == ("node7", (), 50)


def test_jobs_are_found_below_a_folder_and_new_ones_after_a_while(run, tmp_path, alone):
    clock = Clock()
    search = JobSearch([tmp_path / "runs", tmp_path / "missing"], clock.monotonic)
    assert search.read() == []
    lock_run(run)
    assert search.read() == []
    clock.sleep(SEARCH_SECONDS)
    assert [job.folder for job in search.read()] == [run]
    (run / "run.lock").unlink()
    assert search.read() == []  # at once


def test_the_processes_of_a_job_are_those_that_write_its_journal(run, tmp_path, monkeypatch):
    lock_run(run)
    files = {
        3: [run / "metrics.jsonl", tmp_path / "notes.txt"], 8: [run / "ranks" / "rank-1" / "events.jsonl"],
        9: [tmp_path / "elsewhere" / "model.pt"],
    }  # fmt: skip
    monkeypatch.setattr(running_jobs, "python_processes", lambda: list(files))
    monkeypatch.setattr(running_jobs, "open_files", files.get)
    (job,) = JobSearch([]).read()
    assert (job.folder, job.processes) == (run, tuple(sorted({3, 8, os.getpid()})))


@pytest.mark.slow
def test_jobs_are_found_by_the_files_that_processes_have_open(run, tmp_path):
    """Wherever the folder is: here the first rank holds the lock, and another one writes into its own folder."""
    program = """if True:
        import sys, time
        from pathlib import Path
        from brim.record.run_lock import RunLock
        folder = Path(sys.argv[1])
        lock = RunLock.take(folder)
        file = open(folder / "events.jsonl", "a")
        (folder / "ready").touch()
        while True: time.sleep(100)
    """
    rank = run / "ranks" / "rank-1"
    rank.mkdir(parents=True)
    first = subprocess.Popen([sys.executable, "-c", program, str(run)])
    holder = "import sys, time\nfile = open(sys.argv[1], 'a')\nwhile True: time.sleep(100)"
    second = subprocess.Popen([sys.executable, "-c", holder, str(rank / "events.jsonl")])
    try:
        wait_until((run / "ready").exists, first)
        wait_until((rank / "events.jsonl").exists, second)
        found = [job for job in JobSearch([]).read() if job.folder == run]
        assert [job.processes for job in found] == [tuple(sorted((first.pid, second.pid)))]
    finally:
        for process in (first, second):
            process.kill()
            process.wait()
    assert [job for job in JobSearch([]).read() if job.folder == run] == []


def test_a_run_that_writes_is_not_quiet(run):
    lock_run(run)
    with (run / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"time": time.time() + 10, "step": 51}) + "\n")
    assert look_at(run, set()).quiet == 0.0


def test_a_job_tells_where_the_time_of_its_last_steps_goes(tmp_path):
    shares = [{"share/data_wait": 0.5, "share/compute": 0.5}, {"share/data_wait": 0.25, "share/compute": 0.75}]
    lines = [{"step": 10 * place, **line} for place, line in enumerate(shares)]
    run = write_run(tmp_path / "run", [*lines, {"step": 30, "eval/loss": 1.0}])
    lock_run(run)
    job = look_at(run, set())
    assert job.shares == {"data_wait": 0.375, "compute": 0.625}
    assert "compute 62 %, data wait 38 %" in job_facts(job)
    assert json.loads(json.dumps(job.as_json()))["shares"] == job.shares
