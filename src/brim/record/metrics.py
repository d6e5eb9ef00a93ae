"""metrics.jsonl: one object a logged step, and the same numbers for loggers such as TensorBoard."""

import json
import math
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TextIO

from brim.errors import RunFolderError, first_line
from brim.record.loggers import Logger, make_loggers
from brim.record.run_folder import METRICS, RunFolder

MOST_WAITING = 10_000
WRITE_SECONDS = 0.5  # lines are encoded and written together: one by one they cost a short step 0.5 % of its time


class MetricsFile:
    """Appends numbers to the run folder; a watcher sees them half a second later at most."""

    def __init__(
        self, folder: RunFolder, loggers: Any = None, warn: Callable[[str], Any] = lambda sentence: None
    ) -> None:
        try:
            self._file: TextIO = (folder.path / METRICS).open("a", encoding="utf-8")
        except OSError as error:
            raise RunFolderError(f"cannot write to the run folder {folder.path}: {error.strerror}") from error
        self._waiting: list[dict[str, Any]] = []
        self._written = time.time()
        self._encode = json.JSONEncoder(allow_nan=False).encode
        self._folder = folder
        self._loggers = make_loggers(loggers, folder)
        self._have_begun = False
        self._warn = warn

    def begin(self) -> None:
        """Tell loggers where the run is, once; the folder should say by now what it is about."""
        if self._have_begun:
            return
        self._have_begun = True
        for logger in list(self._loggers):
            if hasattr(logger, "start"):
                self._call(logger, logger.start, self._folder.location)

    def write(self, step: int, epoch: int, **numbers: float) -> None:
        now = time.time()
        self._waiting.append({"time": now, "step": step, "epoch": epoch, **numbers})
        if now - self._written >= WRITE_SECONDS:
            self.flush()
        self.begin()
        for logger in list(self._loggers):
            self._call(logger, logger.write, step, epoch, numbers)

    def _call(self, logger: Logger, method: Callable[..., None], *arguments: Any) -> None:
        """A full disk, a network that is gone: metrics.jsonl goes on, and so does the run."""
        try:
            method(*arguments)
        except Exception as error:
            self._loggers.remove(logger)
            self._warn(f"{type(logger).__name__} failed and gets no more numbers: {first_line(error)}")

    def flush(self) -> None:
        """Put on disk what is waiting. A full disk ends no run: then it waits on, and at last the oldest is let go."""
        self._written = time.time()
        try:
            self._file.writelines(self._encode(_finite(record)) + "\n" for record in self._waiting)
            self._file.flush()
            self._waiting.clear()
        except OSError:
            del self._waiting[:-MOST_WAITING]

    def close(self) -> None:
        self.flush()
        with suppress(OSError):  # what could not be written is said where it matters: at the checkpoint
            self._file.close()
        for logger in list(self._loggers):
            if hasattr(logger, "write_held"):
                self._call(logger, logger.write_held)
        for logger in self._loggers:
            try:
                logger.close()
            except Exception as error:  # the run is over, and its numbers are in metrics.jsonl
                self._warn(f"{type(logger).__name__} could not be closed: {error}")


def _finite(record: dict[str, Any]) -> dict[str, Any]:
    """JSON has no NaN and no infinity: null, so that every reader can read the line."""
    return {name: value if math.isfinite(value) else None for name, value in record.items()}
