"""Trial calls of the user's code that leave no trace: in a forked process, or on a copy where none can be forked.

A forked process is a copy of everything: attributes, closures, globals, generators. What it prints is discarded, and
the first file that it would write ends the trial before anything is written.
"""

import contextlib
import copy
import io
import logging
import os
import pickle
import select
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch
from torch import Tensor

from brim.data.garbage import freeze_inherited, gc_paused
from brim.data.probing.state import holds_shared_memory
from brim.data.randomness.seeding import seeded
from brim.ignored_warnings import ignored_warnings
from brim.sizes import bytes_of

T = TypeVar("T")
MOST_COPIED = 256 << 20  # bytes of tensors and arrays
TIMEOUT = 20.0  # seconds without a word from the trial
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGES_TO_FILES = frozenset(
    f"os.{name}" for name in ("remove", "rename", "mkdir", "rmdir", "truncate", "link", "symlink", "chmod", "utime")
)


class WouldWriteFiles(BaseException):
    """The user's code would have written a file. Not an Exception: code that expects failures must not go on."""


def dry_run(
    function: Callable[[Any], T], data: Any, timeout: float = TIMEOUT, is_shared: bool | None = None
) -> T | None:
    """What ``function(data)`` gives, without a trace in this process; None where that cannot be had.

    ``is_shared``: whether other processes write to it as well, where somebody has looked already. Raises
    WouldWriteFiles where the trial ended because it would have written one.
    """
    if holds_shared_memory(data) if is_shared is None else is_shared:
        return None
    if can_fork() and not _is_on_a_gpu(data):
        return _in_a_fork(lambda: function(data), timeout)
    twin = _deep_copy(data)
    if twin is None:
        return None
    with seeded(0), _muted():
        return function(twin)


def can_fork() -> bool:
    """Not on a Mac, whose own libraries do not survive it."""
    return hasattr(os, "fork") and sys.platform != "darwin"


def reset_signals() -> None:
    """In a child process, which inherits handlers: Ctrl-C is the parent's to answer, and SIGTERM ends the child."""
    for name, handler in (("SIGINT", signal.SIG_IGN), ("SIGTERM", signal.SIG_DFL), ("SIGUSR1", signal.SIG_DFL)):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), handler)


def discard_output() -> None:
    """In a process that is there for a trial only: discard what it prints and logs."""
    logging.disable(logging.CRITICAL)
    silent = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        os.dup2(silent, descriptor)
    sys.stdout = sys.stderr = io.TextIOWrapper(os.fdopen(silent, "wb"), write_through=True)
    warnings.simplefilter("ignore")


def _write_no_files() -> None:
    """From here on whatever would write a file raises WouldWriteFiles instead. There is no way back."""
    vars(torch.serialization)["_open_zipfile_writer"] = _refuse  # writes without Python's knowledge
    sys.addaudithook(_refuse_to_write)


def _refuse(*_: Any, **__: Any) -> Any:
    raise WouldWriteFiles


def _refuse_to_write(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open":
        path, _, flags = arguments
        if isinstance(flags, int) and flags & WRITES and path != os.devnull and not isinstance(path, int):
            raise WouldWriteFiles
    elif event in CHANGES_TO_FILES or event.startswith(("shutil.", "sqlite3.connect", "tempfile.")):
        raise WouldWriteFiles


def _in_a_fork(function: Callable[[], T], timeout: float) -> T | None:
    reading, writing = os.pipe()
    with ignored_warnings(), gc_paused():  # Python 3.12 warns of threads, as torch's own workers would
        try:
            child = os.fork()
        except OSError:  # no memory, or no process, to spare
            os.close(reading)
            os.close(writing)
            return None
        if child == 0:
            _run_in_child(function, reading, writing)
    os.close(writing)
    try:
        answer = _answer(reading, time.monotonic() + timeout)
    finally:
        os.close(reading)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(child, 0)
    if answer is None:
        return None
    try:  # pickled by a copy of this process, a moment ago
        writes_files, value = pickle.loads(answer)
    except (EOFError, pickle.UnpicklingError):  # which was killed before it was done
        return None
    if writes_files:
        raise WouldWriteFiles
    result: T | None = value
    return result


def _run_in_child(function: Callable[[], Any], reading: int, writing: int) -> None:
    """The life of the forked process: it ends here, without the exit handlers of the one it was copied from."""
    try:
        freeze_inherited()
        os.close(reading)
        reset_signals()
        torch.set_num_threads(1)  # others do not survive a fork
        discard_output()
        _write_no_files()
        try:
            message = pickle.dumps((False, function()))
        except WouldWriteFiles:
            message = pickle.dumps((True, None))
        left = memoryview(message)
        while left:
            left = left[os.write(writing, left) :]
    except BaseException:  # whatever it is, the trial has no result
        os._exit(1)
    os._exit(0)


def _answer(reading: int, deadline: float) -> bytes | None:
    """What the trial wrote before it ended; None where it wrote nothing, or was not done in time."""
    parts: list[bytes] = []
    while True:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([reading], [], [], left)[0]:
            return None
        part = os.read(reading, 1 << 20)
        if not part:
            return b"".join(parts) or None
        parts.append(part)


def _is_on_a_gpu(data: Any) -> bool:
    """Whether a forked process could not read it: it cannot speak to the GPU that this one speaks to."""
    return torch.cuda.is_initialized() and any(tensor.is_cuda for tensor in _tensors(data))  # type: ignore[no-untyped-call]


def _deep_copy(data: Any) -> Any:
    if sum(bytes_of(tensor) for tensor in _tensors(data)) > MOST_COPIED:
        return None
    try:
        return copy.deepcopy(data)
    except Exception:  # open files, locks, connections
        return None


def _tensors(thing: Any, depth: int = 4) -> Iterator[Tensor]:
    """The tensors in ``thing`` that are easily found."""
    if isinstance(thing, Tensor):
        yield thing
    elif depth and not isinstance(thing, type):
        inside = thing.values() if isinstance(thing, dict) else thing if isinstance(thing, list | tuple) else ()
        for part in (*list(inside)[:1000], *list(getattr(thing, "__dict__", {}).values())):
            yield from _tensors(part, depth - 1)


@contextlib.contextmanager
def _muted() -> Iterator[None]:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        yield
