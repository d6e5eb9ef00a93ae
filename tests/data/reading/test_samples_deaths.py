"""Loader processes that die, hang, or lose their parent.

Each case is a process of its own, because torch raises the death of a worker wherever the main thread happens to be,
which may be in the midst of pytest. One process imports torch and becomes all of them, at once.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")

BEGIN = """
import os, signal, sys, time
import torch
from torch.utils.data import get_worker_info
from brim.data.randomness.order import batch_bounds
from brim.data.reading.one_batch import BatchReader
from brim.data.reading.samples import SampleSource, WorkerSettings
from brim.data.times import FeedTimes

class Samples:
    def __len__(self):
        return 20
    def __getitem__(self, index):
        return get(index)

def epoch(start=0, batch_size=2):
    return source.read(None, batch_bounds(20, batch_size, start), 0)

def told(batches):
    try:
        for batch in batches:
            print("batch", flush=True)
    except Exception as error:
        print(type(error).__name__, error, flush=True)

def settings(count, **others):
    return SampleSource(BatchReader(Samples(), None), 20, WorkerSettings(count, **others), FeedTimes())

for at, case in enumerate(sys.argv[2:]):
    if os.fork() == 0:
        sys.stdout = open(f"{sys.argv[1]}/{at}", "w")
        print(os.getpid(), flush=True)
        try:
            exec(case)
        finally:
            print("end", flush=True)
            os._exit(0)
for _ in sys.argv[2:]:
    os.wait()
"""

KILLED = """
def get(index):
    if index == 7 and get_worker_info() is not None:
        while open(f"{{sys.argv[1]}}/{{at}}").read().count("batch") < 3:  # until what was read before has arrived
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)
    return torch.tensor(index)

source = settings(1, persistent={persistent})
told(epoch())
told(epoch(start=16))
"""

KILLED_BETWEEN = """
def get(index):
    return torch.tensor(os.getpid())

source = settings(1)
batches = epoch()
worker = int(next(batches)[0])
try:
    os.kill(worker, signal.SIGKILL)
    while open(f"/proc/{worker}/stat").read().rpartition(")")[2].split()[0] != "Z":
        time.sleep(0.01)
except RuntimeError:  # torch raises it in the midst of the user's own lines
    pass
told(batches)
"""

ENDLESS = """
def get(index):
    while index == 4 and get_worker_info() is not None:
        time.sleep(0.05)
    return torch.tensor(index)

source = settings(1, timeout=1)
told(epoch())
"""

LEFT_ALONE = """
def get(index):
    time.sleep(0.01)
    return {sample}

source = settings(2)
batches = epoch()
next(batches)
time.sleep(0.5)
print(*[worker.pid for worker in source._workers._iterator._workers], flush=True)
time.sleep(600)
"""

CASES = {
    "killed": KILLED.format(persistent=False),
    "killed, persistent": KILLED.format(persistent=True),
    "killed between": KILLED_BETWEEN,
    "endless": ENDLESS,
    "left alone": LEFT_ALONE.format(sample="torch.tensor(index)"),
    "left alone with texts": LEFT_ALONE.format(sample="'x' * 100_000"),
}


class Case:
    """A process that writes lines: first its number, at last "end"."""

    def __init__(self, file):
        self.file = file

    def lines(self, wanted):
        """What it wrote, once that is so many lines or all of them."""
        while True:
            written = self.file.read_text().splitlines() if self.file.exists() else []
            if len(written) >= wanted or "end" in written:
                return written
            time.sleep(0.05)

    def told(self):
        return self.lines(wanted=1000)[1:-1]


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cases")
    process = subprocess.Popen([sys.executable, "-c", BEGIN, folder, *CASES.values()])
    started = {name: Case(folder / str(at)) for at, name in enumerate(CASES)}
    yield started
    for case in started.values():
        pid, *_, last = case.lines(wanted=1)
        if last != "end" and is_running(pid):
            os.kill(int(pid), signal.SIGKILL)
    process.wait()


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture(scope="module")
def left(cases):  # asked for first: the other cases take their time meanwhile
    """By case: the workers of a process that has been killed."""
    workers = {}
    for name in ("left alone", "left alone with texts"):
        parent, numbers = cases[name].lines(wanted=2)
        os.kill(int(parent), signal.SIGKILL)
        workers[name] = [int(pid) for pid in numbers.split()]
    return workers


@pytest.mark.parametrize("case", ["left alone", "left alone with texts"])  # batches larger than a pipe takes
def test_workers_end_with_the_process_that_started_them(left, case):
    assert len(left[case]) == 2
    while any(is_running(pid) for pid in left[case]):  # they look after their parent every five seconds
        time.sleep(0.1)


@pytest.mark.slow
@pytest.mark.parametrize("case", ["killed", "killed, persistent"])
def test_workers_that_are_killed_again_and_again_are_an_error_and_the_next_epoch_has_new_ones(cases, case):
    *before, said, first, second = cases[case].told()
    assert set(before) == {"batch"}
    assert said.startswith("DataError loader processes were ended from outside 3 times at samples 6, 7")
    assert "try fewer workers" in said
    assert [first, second] == ["batch", "batch"]


@pytest.mark.slow
def test_a_worker_that_is_killed_between_two_batches_is_replaced(cases):
    assert set(cases["killed between"].told()) == {"batch"}


def test_a_sample_that_never_comes_is_an_error_after_the_timeout(cases):
    *before, said = cases["endless"].told()
    assert before.count("batch") == len(before) <= 2  # fewer where the first ones took longer than that
    assert said.startswith("DataError a loader process gave nothing in time")
    assert "timeout=" in said
