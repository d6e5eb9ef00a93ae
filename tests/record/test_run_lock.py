"""One process trains in a run folder; a dead owner is no owner."""

import json
import os
import shutil
import subprocess
import sys
import threading

import pytest

from brim.errors import RunFolderError
from brim.record import run_lock
from brim.record.run_lock import LOCK, STALE_S, Owner, RunLock, process_start, read_owner


@pytest.fixture(autouse=True)
def _nobody_waits(monkeypatch):
    monkeypatch.setattr(run_lock.time, "sleep", lambda seconds: None)


def owned_by(folder, **changes):
    """A lock of somebody else's."""
    owner = {**vars(Owner.of_this_process(folder)), "token": "another", **changes}
    (folder / LOCK).write_text(json.dumps(owner))
    return folder / LOCK


def assert_is_free(folder):
    """Whoever takes the folder owns it, and leaves nothing."""
    lock = RunLock.take(folder)
    assert read_owner(folder / LOCK) == lock.owner
    lock.release()
    assert not (folder / LOCK).exists()


@pytest.fixture
def ended_process():
    process = subprocess.Popen([sys.executable, "-c", ""])
    started = process_start(process.pid)
    process.wait()
    return process.pid, started or "1"


def test_a_second_owner_is_refused_until_the_first_lets_go(tmp_path):
    lock = RunLock.take(tmp_path)
    with pytest.raises(RunFolderError, match=f"is in use by process {os.getpid()} since .*; wait for it to end"):
        RunLock.take(tmp_path)
    lock.release()
    RunLock.take(tmp_path).release()
    assert not list(tmp_path.iterdir())


def test_a_living_process_of_this_machine_is_refused(tmp_path):
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        owned_by(tmp_path, process=other.pid, started=process_start(other.pid))
        with pytest.raises(RunFolderError, match=f"process {other.pid} since"):
            RunLock.take(tmp_path)
        other.stdin.close()


def test_what_a_dead_process_owned_is_taken_over_at_once(tmp_path, ended_process):
    number, started = ended_process
    owned_by(tmp_path, process=number, started=started)
    waited = []
    lock = RunLock.take(tmp_path, waited.append)
    assert read_owner(tmp_path / LOCK) == lock.owner and not waited
    lock.release()


def test_the_number_of_a_dead_process_may_be_another_ones_now(tmp_path):
    owned_by(tmp_path, started="long ago")  # this very process, by its number
    assert_is_free(tmp_path)


def test_a_process_that_has_ended_and_was_not_waited_for_is_dead(tmp_path):
    other = subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE)
    started = process_start(other.pid)
    other.stdout.read()  # it has closed its end
    os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
    owned_by(tmp_path, process=other.pid, started=started or "1")
    assert_is_free(tmp_path)
    other.wait()


def test_a_copy_of_the_folder_of_a_run_that_goes_on_is_free(tmp_path):
    (tmp_path / "run").mkdir()
    lock = RunLock.take(tmp_path / "run")
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    assert_is_free(tmp_path / "copy")
    lock.release()


def aged(path, seconds):
    now = path.stat().st_mtime
    os.utime(path, (now - seconds, now - seconds))


def test_an_owner_on_another_machine_without_a_sign_of_life_is_dead(tmp_path):
    aged(owned_by(tmp_path, machine="elsewhere", host="node7"), STALE_S + 5)
    waited = []
    RunLock.take(tmp_path, waited.append).release()
    assert not waited


def test_one_that_gives_a_sign_while_it_is_waited_for_is_refused(tmp_path, monkeypatch):
    path = owned_by(tmp_path, machine="elsewhere", host="node7")
    aged(path, STALE_S / 2)
    monkeypatch.setattr(run_lock.time, "sleep", lambda seconds: os.utime(path))
    waited = []
    with pytest.raises(RunFolderError, match="on node7 since"):
        RunLock.take(tmp_path, waited.append)
    assert len(waited) == 1 and "waiting 60 s" in waited[0]


def test_one_that_gives_none_is_taken_over_after_a_minute(tmp_path, monkeypatch):
    aged(owned_by(tmp_path, machine="elsewhere"), 1)
    slept = []
    monkeypatch.setattr(run_lock.time, "sleep", slept.append)
    RunLock.take(tmp_path).release()
    assert sum(slept) == STALE_S


def test_one_that_ends_while_it_is_waited_for_leaves_the_folder_free(tmp_path, monkeypatch):
    path = owned_by(tmp_path, machine="elsewhere")
    monkeypatch.setattr(run_lock.time, "sleep", lambda seconds: path.unlink(missing_ok=True))
    assert_is_free(tmp_path)


def test_an_owner_whose_folder_was_taken_over_is_told(tmp_path):
    lock = RunLock.take(tmp_path)
    lock.check()
    owned_by(tmp_path, machine="elsewhere", host="node7")
    with pytest.raises(RunFolderError, match=r"was taken over by process .* on node7"):
        lock.check()
    lock.release()
    assert read_owner(tmp_path / LOCK).token == "another"  # what is another's is left alone


def test_it_gives_signs_of_life(tmp_path, monkeypatch):
    monkeypatch.setattr(run_lock, "HEARTBEAT_S", 0.001)
    touched, touch = threading.Event(), os.utime
    monkeypatch.setattr(run_lock.os, "utime", lambda path: (touch(path), touched.set()))
    lock = RunLock.take(tmp_path)
    touched.wait()
    lock.release()
    assert not any(thread.name == "brim-run-lock" for thread in threading.enumerate())


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"process": "x"}', "[" * 100_000])
def test_a_lock_that_says_nothing_is_waited_for_and_replaced(tmp_path, content):
    (tmp_path / LOCK).write_text(content)
    RunLock.take(tmp_path).release()
    assert not (tmp_path / LOCK).exists()


def test_where_nothing_can_be_written_there_is_no_lock_and_no_crash(tmp_path, monkeypatch):
    def refuse(path, owner):
        raise PermissionError("read-only file system")

    monkeypatch.setattr(run_lock, "write_aside", refuse)
    lock = RunLock.take(tmp_path)
    assert lock.owner is None
    lock.check()
    lock.release()


def test_a_file_system_without_links_has_locks_too(tmp_path, monkeypatch):
    def no_links(source, target):
        raise OSError(95, "not supported")

    monkeypatch.setattr(run_lock.os, "link", no_links)
    lock = RunLock.take(tmp_path)
    with pytest.raises(RunFolderError, match="in use"):
        RunLock.take(tmp_path)
    lock.release()


def test_without_a_table_of_processes_the_system_is_asked_otherwise(tmp_path, monkeypatch):
    monkeypatch.setattr(run_lock, "PROC", tmp_path / "nowhere")
    assert process_start(os.getpid()) is not None
    lock = RunLock.take(tmp_path)
    if lock.owner.started:
        with pytest.raises(RunFolderError, match="in use"):
            RunLock.take(tmp_path)
    lock.release()


def test_ranks_wait_for_a_first_rank_of_before_that_has_not_noticed_that_it_is_alone(tmp_path, monkeypatch):
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        path, waited, said = owned_by(tmp_path, process=other.pid, started=process_start(other.pid)), [], []

        def sleep(seconds):
            waited.append(seconds)
            if len(waited) == 3:
                path.unlink()

        monkeypatch.setattr(run_lock.time, "sleep", sleep)
        RunLock.take(tmp_path, said.append, patience=60.0).release()
        assert len(waited) == 3 and len(said) == 1 and "waiting for it to end" in said[0]
        owned_by(tmp_path, process=other.pid, started=process_start(other.pid))
        with pytest.raises(RunFolderError, match="in use"):
            RunLock.take(tmp_path, patience=5.0)
        other.stdin.close()
