"""Processes that a script starts itself: where it trains in them, there is nothing to see here."""

import multiprocessing.process
import os
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

from brim.doctor.orphans import children_of
from brim.doctor.watching.host_counters import TICKS

BUSY = 0.1  # of a core: a process that only waits for requests takes less


class StartedProcesses:
    """Counts them, worker processes of loaders included; one that multiprocessing forks counts twice."""

    def __init__(self) -> None:
        self.count = 0

    def install(self) -> None:
        counter = self
        start, make = multiprocessing.process.BaseProcess.start, subprocess.Popen.__init__
        fork = getattr(os, "fork", None)

        def counted_start(self: Any) -> None:
            counter.count += 1
            start(self)

        def counted_make(self: Any, *arguments: Any, **options: Any) -> None:
            counter.count += 1
            make(self, *arguments, **options)

        def counted_fork() -> int:
            counter.count += 1
            assert fork is not None
            return int(fork())

        if fork is not None:
            os.fork = counted_fork
        multiprocessing.process.BaseProcess.start = counted_start  # type: ignore[method-assign]
        subprocess.Popen.__init__ = counted_make  # type: ignore[method-assign]


def children_seconds() -> dict[int, float]:
    """CPU seconds of each child process up to now; none where the system does not show them."""
    found = {}
    for pid, state, _ in children_of(os.getpid()):
        with suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            if state != "Z":
                found[pid] = sum(int(ticks) for ticks in fields[11:13]) / TICKS  # utime and stime
    return found


def busy_children(before: dict[int, float], after: dict[int, float], seconds: float) -> int:
    """How many child processes computed, of those that live at the end of some seconds.

    >>> busy_children({7: 1.0, 8: 1.0}, {7: 1.1, 8: 3.0, 9: 2.0}, seconds=4.0)
    2
    """
    return sum(spent - before.get(pid, 0.0) >= BUSY * seconds for pid, spent in after.items())
