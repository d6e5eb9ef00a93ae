"""Processes that a script has left behind: they become this process's children, and are ended."""

import ctypes
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

SET_SUBREAPER, GET_SUBREAPER = 36, 37  # of Linux's prctl


@contextmanager
def ending_orphans() -> Iterator[None]:
    """End what was started within and has lost its parent. By that it is known which has cleared its environment, and
    left its session.

    Elsewhere than on Linux such processes go to the system, and stay.
    """
    if not sys.platform.startswith("linux"):
        yield
        return
    library = ctypes.CDLL(None)
    before, was_reaper = set(adopted()), ctypes.c_int(0)
    library.prctl(GET_SUBREAPER, ctypes.byref(was_reaper))
    library.prctl(SET_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        while left := set(adopted()) - before:  # the children of those come next
            for pid in left:
                _end(pid)
        library.prctl(SET_SUBREAPER, was_reaper.value, 0, 0, 0)


def adopted() -> list[int]:
    """Children of this process that are in another session: own ones are in this one."""
    return [pid for pid, _, session in children_of(os.getpid()) if session != os.getsid(0)]


def children_of(process: int) -> list[tuple[int, str, int]]:
    """Number, state and session of each of its children; none where the system does not show them."""
    found = []
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError):
            state, parent, _, session, *_ = file.read_text().rpartition(")")[2].split()
            if int(parent) == process:
                found.append((int(file.parent.name), state, int(session)))
    return found


def _end(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    with suppress(ChildProcessError):
        os.waitpid(pid, 0)
