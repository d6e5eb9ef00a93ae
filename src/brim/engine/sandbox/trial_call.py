"""Calls of users' code that do not count: they print nothing, write nothing and leave everything as it was."""

import logging
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout
from functools import cache
from typing import Any, TextIO

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from brim.data.randomness.generators import generator_states, restore_generators
from brim.engine.numbers.gather_scope import Alone, gathering
from brim.engine.sandbox.python_state import PythonState
from brim.errors import a_type
from brim.ignored_warnings import ignored_warnings
from brim.replaced import replaced

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGES = (
    "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.truncate", "os.link", "os.symlink", "os.system",
    "shutil.copyfile", "shutil.move", "shutil.rmtree", "socket.connect", "sqlite3.connect", "subprocess.Popen",
)  # fmt: skip
# What a trial puts back and replaces belongs to the process: of two that overlap, the second would leave the first's.
_ONE_AT_A_TIME = threading.RLock()
COMPILERS = ("_inductor", "_dynamo", "triton", "importlib")  # they keep files of their own, whoever calls them


class WritesFiles(Exception):
    """Users' code was about to write to the outside in a call that does not count. Nothing was written."""


class StepsOptimizer(Exception):
    """Users' code was about to let an optimizer step in a call that does not count."""


@contextmanager
def trial_call(
    *roots: Any, device: torch.device | None = None, but_for: Iterable[nn.Module] = (), may_step: bool = True
) -> Iterator[Callable[[], None]]:
    """Around calls of ``roots`` (a model, a loss function, ...) that only find something out.

    Afterwards their Python state and all random generators are as before; calling what this yields puts them back
    between two calls. What they print is discarded. Where they would write a file, start a process or speak to the
    network, :class:`WritesFiles` is raised instead; and without ``may_step`` :class:`StepsOptimizer`, where a loss has
    an optimizer of its own. The tensors of the modules in ``but_for`` are kept by the caller. One thread at a time
    makes such calls, and others go on training meanwhile.
    """
    with _ONE_AT_A_TIME, _trial(roots, device or torch.device("cpu"), but_for, may_step) as rewind:
        yield rewind


@contextmanager
def _trial(
    roots: tuple[Any, ...], home: torch.device, but_for: Iterable[nn.Module], may_step: bool
) -> Iterator[Callable[[], None]]:
    state, generators = PythonState(*roots, but_for=but_for), generator_states(home)

    def rewind() -> None:
        state.restore()
        restore_generators(generators, home)

    try:
        stepping = nullcontext() if may_step else _without_stepping()
        with _silence(), _without_writing(), gathering(Alone()), stepping:  # no other rank is there to gather from
            yield rewind
    finally:
        rewind()


@contextmanager
def _without_stepping() -> Iterator[None]:
    own = threading.get_ident()

    def refuse(optimizer: Any, *_: Any) -> None:
        if threading.get_ident() == own or isinstance(threading.current_thread(), threading._DummyThread):
            raise StepsOptimizer(f"it lets {a_type(optimizer)} step")  # here, or in a thread of autograd's

    handle = register_optimizer_step_pre_hook(refuse)
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def _silence() -> Iterator[None]:
    """Discard what this thread prints, logs and warns; others go on speaking."""
    own, write = threading.get_ident(), logging.Logger.callHandlers
    out, err = _OthersOnly(sys.stdout), _OthersOnly(sys.stderr)

    def write_others(logger: logging.Logger, record: logging.LogRecord) -> None:
        if threading.get_ident() != own:
            write(logger, record)

    silent = replaced((logging.Logger, "callHandlers", write_others))
    with redirect_stdout(out), redirect_stderr(err), ignored_warnings(), silent:
        yield


class _OthersOnly:
    """A text stream for every thread but the one that made this."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._silent = threading.get_ident()

    def write(self, text: str) -> int:
        return len(text) if threading.get_ident() == self._silent else self._stream.write(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def _without_writing() -> Iterator[None]:
    refusing = _refusing()
    before, refusing.is_on = getattr(refusing, "is_on", False), True
    try:
        yield
    finally:
        refusing.is_on = before


@cache
def _refusing() -> threading.local:
    """Which threads must not write. The hook that asks is installed once, for Python has no way to remove one."""
    refusing = threading.local()

    def look(event: str, arguments: tuple[Any, ...]) -> None:
        if (event == "open" or event in CHANGES) and getattr(refusing, "is_on", False) and _writes(event, arguments):
            raise WritesFiles(f"{event} {str(arguments[0])[:200] if arguments else ''}")

    sys.addaudithook(look)
    return refusing


def _writes(event: str, arguments: tuple[Any, ...]) -> bool:
    if event == "open":
        path, mode, flags = (*arguments, None, None, None)[:3]
        if not (isinstance(flags, int) and flags & WRITING) and not set(str(mode or "")) & set("wax+"):
            return False
        if isinstance(path, int) or os.fspath(path or "").__str__().startswith("/dev/"):
            return False
    frame = sys._getframe(2)
    while frame is not None:
        if any(name in frame.f_globals.get("__name__", "") for name in COMPILERS):
            return False
        frame = frame.f_back  # type: ignore[assignment]
    return True
