"""Several real processes at one cache."""

import os
import re
import signal
import subprocess
import sys
from collections import Counter

import pytest
from helpers.waiting import wait_until

from brim.data.cache.dataset import CHECKED_AT_OPENING, TWICE_AT_BUILDING, cached

PROGRAM = """
import os, sys, time
import torch
from brim.data.cache.dataset import cached

folder, calls, pause = sys.argv[1], sys.argv[2], float(sys.argv[3])
workers, samples = int(sys.argv[4]), int(sys.argv[5])

def transform(x):
    log = os.open(calls, os.O_APPEND | os.O_CREAT | os.O_WRONLY)
    os.write(log, f"{os.getpid()} {x}\\n".encode())
    os.close(log)
    time.sleep(pause)
    return torch.full((4,), x)

cache = cached(list(range(samples)), transform, folder, key="shared", num_workers=workers)
print([int(x[0]) for x in cache] == list(range(samples)), flush=True)
sys.stdin.read()
"""

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals")


def start(tmp_path, pause=0.0, workers=0, samples=200):
    arguments = [str(tmp_path / "cache"), str(tmp_path / "calls"), str(pause), str(workers), str(samples)]
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def succeeded(process):
    """That it read all samples, and said nothing but that it waits or works, on a slow machine."""
    out, errors = process.communicate("")
    told = [line for line in errors.splitlines() if not line.startswith(("brim: waiting for", "brim: building the"))]
    return (out, told) == ("True\n", [])


def calls(tmp_path):
    return [line.split() for line in (tmp_path / "calls").read_text().splitlines()]


def left_in(tmp_path):
    return [path.name for path in (tmp_path / "cache").iterdir()]


@pytest.mark.slow
def test_of_four_processes_one_computes_each_sample_and_all_read_them(tmp_path):
    processes = [start(tmp_path, pause=0.001) for _ in range(4)]
    for process in processes:
        assert succeeded(process)
    by_process = Counter(process for process, _ in calls(tmp_path))
    builder = 200 + 2 * TWICE_AT_BUILDING + CHECKED_AT_OPENING
    assert sorted(by_process.values()) == [CHECKED_AT_OPENING] * 3 + [builder]
    assert re.fullmatch(r"[0-9a-f]{32}\.brim", *left_in(tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize(("number", "workers"), [(signal.SIGKILL, 0), (signal.SIGINT, 0), (signal.SIGINT, 2)])
def test_a_builder_that_is_stopped_in_the_middle_leaves_no_entry_and_the_next_one_takes_over(tmp_path, number, workers):
    first = start(tmp_path, pause=0.01, workers=workers, samples=2000)
    wait_until(lambda: (tmp_path / "calls").exists() and len(calls(tmp_path)) > 2 * TWICE_AT_BUILDING + 5, first)
    second = start(tmp_path, samples=2000)
    assert not any(name.endswith(".brim") for name in left_in(tmp_path))
    os.kill(first.pid, number)
    first.communicate()
    assert first.returncode != 0
    assert succeeded(second)
    assert re.fullmatch(r"[0-9a-f]{32}\.brim", *left_in(tmp_path))


@pytest.mark.slow
def test_an_entry_that_another_process_has_open_is_not_removed_to_make_room(tmp_path):
    other = start(tmp_path)
    assert other.stdout.readline() == "True\n"
    (held,) = left_in(tmp_path)
    for number in range(3):
        cached(range(200), lambda x: [x] * 4, tmp_path / "cache", max_size="16kB", key=str(number))
    assert held in left_in(tmp_path)
    assert len(left_in(tmp_path)) == 2
    other.communicate("")
    cached(range(200), lambda x: [x] * 4, tmp_path / "cache", max_size="8kB", key="last")
    assert held not in left_in(tmp_path)
