"""Whether a thread runs or waits for something, as the kernel says, and how much of each it has done."""

import contextlib
import ctypes
import os
import threading
import time
from dataclasses import dataclass

_open, _close = os.open, os.close  # Python's own: the script has others
WAITING = (b"S", b"D")  # asleep: it neither has nor wants a core
SET_TIMER_SLACK = 29  # PR_SET_TIMERSLACK of Linux


@dataclass(frozen=True)
class Spent:
    """Seconds of a thread: with a core, in line for one, and waiting for anything else."""

    running: float
    in_line: float
    waiting: float


class ThreadState:
    """The state of the thread that makes it, for others to ask, from then on.

    Raises:
        OSError: The system does not tell.
    """

    def __init__(self) -> None:
        folder = f"/proc/self/task/{threading.get_native_id()}"
        self._state, self._times = _open(f"{folder}/stat", os.O_RDONLY), _open(f"{folder}/schedstat", os.O_RDONLY)
        self._began, self._before = time.perf_counter(), self._core_times()

    def is_waiting(self) -> bool:
        """Whether it waits for anything but a core.

        Reading a file lets go of the interpreter: a thread that waits for nothing else runs again meanwhile.
        """
        try:
            return os.pread(self._state, 512, 0).rpartition(b")")[2].split()[0] in WAITING
        except ProcessLookupError:
            return False

    def spent(self) -> Spent | None:
        """What it has done up to now; None where it has ended."""
        try:
            running, in_line = (now - before for now, before in zip(self._core_times(), self._before, strict=True))
        except ProcessLookupError:
            return None
        return Spent(running, in_line, max(0.0, time.perf_counter() - self._began - running - in_line))

    def close(self) -> None:
        """Nobody asks any more."""
        _close(self._state)
        _close(self._times)

    def _core_times(self) -> tuple[float, float]:
        running, in_line, _ = os.pread(self._times, 128, 0).split()
        return int(running) / 1e9, int(in_line) / 1e9


def thread_state() -> ThreadState | None:
    """That of this thread; None where the system does not tell."""
    try:
        return ThreadState()
    except (OSError, ValueError):
        return None


def wake_on_time() -> None:
    """Let the calling thread wait no longer than it asks for; Linux adds 50 us.

    Meanwhile the thread that it looks at would come to its next operator, which gives the interpreter away, and be seen
    there instead of in the Python code before it.
    """
    with contextlib.suppress(OSError, AttributeError):  # another system
        ctypes.CDLL(None).prctl(SET_TIMER_SLACK, 1)
