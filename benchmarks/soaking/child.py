"""Processes that train: forked from this one, where everything is imported already, or started from nothing."""

import faulthandler
import fcntl
import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from soaking.outcome import WentWrong
from soaking.recipe import Recipe

PIPE = 1 << 20  # bytes that a child can say before somebody listens
LIMIT = 60.0  # seconds; a training takes a tenth of one, or two when its imports are part of it
SOAK = Path(__file__).parents[1] / "soak.py"


def warm_up() -> None:
    """Import what trainings import when they need it, so that no child has to.

    Nothing is computed here: autograd cannot be used on both sides of a fork.
    """
    import torch._dynamo  # torch's optimizers import it
    import torch.utils.serialization.config

    with suppress(ImportError):
        import torch.utils.tensorboard
    torch.set_num_threads(1)


@dataclass
class Child:
    """A process with a group of its own: its loader processes belong to that."""

    pid: int
    pipe: int  # what it says; not a file, which a full disk would be too small for
    join: Callable[[float], int | None]  # waits so many seconds at most; the exit code, or None
    said: str = ""

    def signal(self, number: int, to_all: bool = False) -> None:
        with suppress(ProcessLookupError):  # it has ended meanwhile
            (os.killpg if to_all else os.kill)(self.pid, number)

    def wait(self, limit: float = LIMIT) -> int:
        """Its exit code, negative for a signal; one that does not end is a failure, and says where it hangs."""
        code = self.join(limit)
        if code is None:
            self.signal(signal.SIGABRT)  # faulthandler writes where each thread is
            self.join(LIMIT)
            self.end()
            raise WentWrong(f"does not end within {limit:.0f} s\n{self.words(4000)}")
        return code

    def end(self) -> None:
        """Whatever is left of it."""
        self.signal(signal.SIGKILL, to_all=True)
        self.join(LIMIT)
        self.words()

    def close(self) -> None:
        self.end()
        os.close(self.pipe)

    def words(self, most: int = 1500) -> str:
        """The last that it said."""
        with suppress(BlockingIOError):
            while part := os.read(self.pipe, PIPE):
                self.said += part.decode(errors="replace")
        said = re.sub(r"\n+Extension modules: .*", "", self.said)  # faulthandler's list, longer than the rest
        return said[-most:]


def fork(work: Callable[[], int]) -> Child:
    """``work`` in a copy of this process; what it returns is the exit code."""
    listening, speaking = _pipe()
    process = multiprocessing.get_context("fork").Process(target=_work, args=(work, speaking))
    process.start()
    os.close(speaking)
    assert process.pid is not None
    with suppress(ProcessLookupError, PermissionError):
        os.setpgid(process.pid, process.pid)  # here as well as there: whoever comes first

    def join(seconds: float) -> int | None:
        process.join(seconds)
        return process.exitcode

    return Child(process.pid, listening, join)


def _work(work: Callable[[], int], speaking: int) -> None:
    with suppress(PermissionError):
        os.setpgid(0, 0)
    speak_into(speaking)
    faulthandler.disable()  # where it is on already, it would not take back a signal that a library has taken meanwhile
    faulthandler.enable()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGABRT})
    sys.exit(work())


def speak_into(file: int) -> None:
    """Let everything that this process prints go there."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
        os.dup2(file, stream.fileno())


def start_fresh(recipe: Recipe, folder: Path) -> Child:
    """The training in an interpreter of its own, imports included."""
    (folder / "recipe.json").write_text(json.dumps(asdict(recipe)))
    listening, speaking = _pipe()
    command = [sys.executable, "-X", "faulthandler", str(SOAK), "--train", str(folder)]
    process = subprocess.Popen(command, stdout=speaking, stderr=speaking, start_new_session=True)
    os.close(speaking)

    def join(seconds: float) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            return process.wait(seconds)
        return None

    return Child(process.pid, listening, join)


def _pipe() -> tuple[int, int]:
    listening, speaking = os.pipe()
    fcntl.fcntl(speaking, fcntl.F_SETPIPE_SZ, PIPE)
    os.set_blocking(listening, False)
    return listening, speaking


def alive_in(group: int) -> list[str]:
    """The processes of a group, less those that have ended and wait to be noticed."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, IndexError):
            name, rest = entry.read_text().rsplit(")", 1)
            state, _, owner, *_ = rest.split()
            if int(owner) == group and state not in "ZX":
                found.append(name.split("(", 1)[1])
    return found
