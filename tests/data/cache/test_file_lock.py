import os
import subprocess
import sys

import pytest

from brim.data.cache import file_lock
from brim.data.cache.file_lock import try_lock, wait_for_lock


def test_an_exclusive_lock_excludes_others_and_shared_ones_do_not(tmp_path):
    path = tmp_path / "lock"
    first = try_lock(path, exclusive=True, create=True)
    assert try_lock(path, exclusive=True) is None
    assert try_lock(path, exclusive=False) is None
    first.close()
    shared = [try_lock(path, exclusive=False) for _ in range(2)]
    assert all(shared)
    assert try_lock(path, exclusive=True) is None


def test_a_lock_that_nobody_refers_to_is_let_go(tmp_path):
    try_lock(tmp_path / "lock", exclusive=True, create=True)
    assert try_lock(tmp_path / "lock", exclusive=True) is not None


@pytest.mark.slow
def test_a_lock_of_a_process_that_ended_is_let_go(tmp_path):
    program = (
        "import os, sys, pathlib; from brim.data.cache.file_lock import try_lock\n"
        "lock = try_lock(pathlib.Path(sys.argv[1]), exclusive=True, create=True)\n"
        "os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path / "lock")])
    assert done.returncode == -9
    assert try_lock(tmp_path / "lock", exclusive=True) is not None


def test_a_missing_file_is_not_made_unless_asked_for(tmp_path):
    with pytest.raises(FileNotFoundError):
        try_lock(tmp_path / "lock", exclusive=False)


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may write everywhere")
def test_a_file_that_may_only_be_read_can_be_shared(tmp_path):
    (tmp_path / "lock").touch(mode=0o444)
    assert try_lock(tmp_path / "lock", exclusive=False) is not None


def test_a_lock_on_a_file_that_was_removed_or_replaced_is_known_as_such(tmp_path):
    path = tmp_path / "lock"
    lock = try_lock(path, exclusive=True, create=True)
    assert lock.is_still(path)
    path.rename(tmp_path / "kept")  # or the new file could have its number
    assert not lock.is_still(path)
    path.touch()
    assert not lock.is_still(path)


def test_waiting_is_said_once(tmp_path, monkeypatch):
    path = tmp_path / "lock"
    held = try_lock(path, exclusive=True, create=True)
    said, naps = [], []

    def nap(seconds):
        naps.append(seconds)
        if len(naps) == 5:
            held.release()

    monkeypatch.setattr(file_lock, "SAY_SO_SECONDS", 0.0)
    monkeypatch.setattr(file_lock.time, "sleep", nap)
    assert wait_for_lock(path, lambda: said.append(len(naps))).is_still(path)
    assert said == [0]
