"""A process that tries cases, so that one which takes the process down, or never ends, ends no more than that."""

import multiprocessing
import resource
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from fuzzing.reader import Outcome, Reader, try_case

MOST_SECONDS = 5.0
STARTING_SECONDS = 120.0
MOST_MEMORY = 4 << 30  # beyond what the process has when it is ready: asking for more fails, as on a small machine


class Worker:
    """Tries cases in a process of its own, and starts another one where that is gone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._process: Any = None
        self._line: Any = None

    def try_case(self, reader: str, case: str) -> Outcome:
        if self._process is None:
            self._start()
        self._line.send((reader, case))
        try:
            if self._line.poll(MOST_SECONDS):
                outcome: Outcome = self._line.recv()
                return outcome
            wrong = f"no end after {MOST_SECONDS:g} s"
        except EOFError:
            self._process.join()
            wrong = f"the process ended with {self._process.exitcode}"
        self.close()
        return Outcome("failed", wrong)

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._line.close()
            self._process = None

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")  # a fork of a process with torch's threads can hang
        self._line, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, self.folder), daemon=True)
        self._process.start()
        theirs.close()
        if not self._line.poll(STARTING_SECONDS) or self._line.recv() != "ready":
            raise RuntimeError("the process that tries the cases does not start")


def _serve(line: Connection, folder: Path) -> None:
    import torch

    from fuzzing.readers import READERS

    torch.set_num_threads(1)
    for name, reader in READERS.items():
        warm_up(name, reader, folder)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MOST_MEMORY,) * 2)
    line.send("ready")
    while True:
        name, case = line.recv()
        line.send(try_case(READERS[name], case, folder / name))


def warm_up(name: str, reader: Reader, folder: Path) -> None:
    """Once, outside of any time limit: modules are imported, and valid files are read as such."""
    random = reader.prepare("", folder / name, spoiled=False)
    reader.read(folder / name, random)
