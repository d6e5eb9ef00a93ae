"""Processes that a script starts itself: where it trains in them, there is nothing to see here."""

import multiprocessing.process
import os
import subprocess
from typing import Any

from brim.doctor.orphans import children_of


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


def living_children() -> int:
    """How many child processes this one has; 0 where the system does not show it."""
    return sum(state != "Z" for _, state, _ in children_of(os.getpid()))
