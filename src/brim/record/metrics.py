"""metrics.jsonl: one object a logged step, and the same numbers for TensorBoard where it is installed."""

import json
import math
import time
from contextlib import suppress
from typing import Any, TextIO

from brim.errors import RunFolderError
from brim.record.run_folder import METRICS, RunFolder

MOST_WAITING = 10_000
WRITE_SECONDS = 0.5  # lines are encoded and written together: one by one they cost a short step 0.5 % of its time
BOARD_SECONDS = 1.0  # TensorBoard takes 60 us a number, and nobody looks at more than one point a second


class MetricsFile:
    """Appends numbers to the run folder; a watcher sees them half a second later at most."""

    def __init__(self, folder: RunFolder) -> None:
        try:
            self._file: TextIO = (folder.path / METRICS).open("a", encoding="utf-8")
        except OSError as error:
            raise RunFolderError(f"cannot write to the run folder {folder.path}: {error.strerror}") from error
        self._waiting: list[dict[str, Any]] = []
        self._written = time.time()
        self._encode = json.JSONEncoder(allow_nan=False).encode
        self._board = _tensorboard(folder)
        self._on_board: dict[str, float] = {}  # when each number was last shown there

    def write(self, step: int, epoch: int, **numbers: float) -> None:
        now = time.time()
        self._waiting.append({"time": now, "step": step, "epoch": epoch, **numbers})
        if now - self._written >= WRITE_SECONDS:
            self.flush()
        if self._board is not None:
            try:
                self._show(step, numbers, now)
            except OSError:  # its writer stops at the first failure: a full disk. metrics.jsonl goes on
                self._board = None

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
        if self._board is not None:
            with suppress(OSError):
                self._board.close()

    def _show(self, step: int, numbers: dict[str, float], now: float) -> None:
        for name, value in numbers.items():
            if now - self._on_board.get(name, 0.0) >= BOARD_SECONDS:
                self._on_board[name] = now
                self._board.add_scalar(name, value, step)


def _finite(record: dict[str, Any]) -> dict[str, Any]:
    """JSON has no NaN and no infinity: null, so that every reader can read the line."""
    return {name: value if math.isfinite(value) else None for name, value in record.items()}


def _tensorboard(folder: RunFolder) -> Any:
    """A TensorBoard writer, or None where the extra ``brim[tensorboard]`` is not installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(log_dir=str(folder.path))
