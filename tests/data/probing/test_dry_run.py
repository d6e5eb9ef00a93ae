import logging
import os
import random
import sqlite3
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from brim.data.probing import dry_run as dry_run_module
from brim.data.probing.dry_run import WouldWriteFiles, dry_run

NOTED = []


class Data:
    """Leaves a trace everywhere when it is read."""

    reads = 0

    def __init__(self):
        self.seen = []

    def read(self):
        Data.reads += 1
        self.seen.append(1)
        NOTED.append(1)
        random.random(), np.random.rand(), torch.rand(1)
        print("read")
        print("read", file=sys.stderr)
        logging.getLogger("data").error("read")
        os.write(1, b"read")
        return len(self.seen) + 41


def states():
    return torch.get_rng_state().tolist(), random.getstate(), [str(part) for part in np.random.get_state()]


def test_a_trial_leaves_no_trace(capfd):
    data, before, folder = Data(), states(), os.environ.copy()
    assert dry_run(Data.read, data) == 42
    assert (data.seen, Data.reads, NOTED) == ([], 0, [])
    assert states() == before
    assert os.environ == folder
    assert capfd.readouterr() == ("", "")


def test_without_fork_a_trial_is_made_on_a_copy(monkeypatch, capsys):
    monkeypatch.setattr(dry_run_module, "can_fork", lambda: False)

    class OnlyItself(Data):
        def read(self):
            self.seen.append(1)
            print("read")
            return torch.rand(1).numel()

    data, before = OnlyItself(), states()
    assert dry_run(OnlyItself.read, data) == 1
    assert data.seen == []
    assert states() == before
    assert capsys.readouterr().out == ""


def test_what_can_neither_be_forked_nor_copied_is_not_tried(monkeypatch):
    monkeypatch.setattr(dry_run_module, "can_fork", lambda: False)
    data = Data()
    data.file = Path(__file__).open()  # noqa: SIM115
    assert dry_run(Data.read, data) is None
    data.file.close()
    assert data.seen == []
    monkeypatch.setattr(dry_run_module, "MOST_COPIED", 8)
    data = Data()
    data.x = torch.zeros(100)
    assert dry_run(Data.read, data) is None


def test_memory_that_processes_share_is_not_tried_on():
    data = Data()
    data.steps = torch.zeros(1).share_memory_()
    assert dry_run(lambda data: data.steps.add_(1), data) is None
    assert data.steps.tolist() == [0]


WRITING = {
    "open": lambda path: path.write_text("changed"),
    "append": lambda path: path.open("a"),
    "torch": lambda path: torch.save(1, path),
    "numpy": lambda path: np.save(path, np.zeros(1)),
    "remove": lambda path: path.unlink(),
    "folder": lambda path: path.with_name("folder").mkdir(),
    "rename": lambda path: path.rename(path.with_name("other")),
    "descriptor": lambda path: os.open(path, os.O_RDWR | os.O_TRUNC),
    "database": lambda path: sqlite3.connect(path.with_name("table")),
}


@pytest.mark.parametrize("write", WRITING.values(), ids=WRITING.keys())
def test_a_trial_ends_before_it_writes_its_first_file(tmp_path, write):
    path = tmp_path / "counts"
    path.write_text("as it was")

    def careful(data):
        try:
            write(path)
        except Exception:  # as code does that expects a full disk
            return 1

    with pytest.raises(WouldWriteFiles):
        dry_run(careful, Data())
    assert path.read_text() == "as it was"
    assert list(tmp_path.iterdir()) == [path]


def test_reading_files_is_no_writing():
    assert dry_run(lambda data: len(Path(__file__).read_text()), Data()) > 0


@pytest.mark.parametrize("end", [lambda data: os._exit(3), lambda data: 1 / 0, lambda data: lambda: 0])
def test_a_trial_that_dies_fails_or_gives_what_cannot_be_handed_over_has_no_result(end):
    assert dry_run(end, Data()) is None


def test_a_trial_that_hangs_is_ended():
    assert dry_run(lambda data: time.sleep(600), Data(), timeout=0.1) is None


def test_a_large_result_comes_whole():
    assert dry_run(lambda data: torch.arange(1 << 19), Data()).sum() == sum(range(1 << 19))


def test_a_trial_that_is_killed_while_it_hands_over_what_it_found_has_no_result():
    def is_killed_halfway(data):
        write = os.write

        def half(descriptor, content):
            write(descriptor, content[: len(content) // 2])
            os._exit(9)

        os.write = half
        return b"x" * 100

    assert dry_run(is_killed_halfway, None) is None
