"""metrics.jsonl: one object a logged step, and the same numbers for TensorBoard where it is installed."""

import json
import math
import time
from typing import Any, TextIO

from brim.record.run_folder import METRICS, RunFolder

BOARD_SECONDS = 1.0  # TensorBoard takes 60 us a number, and nobody looks at more than one point a second


class MetricsFile:
    """Appends numbers to the run folder; each line is flushed, so that a watcher sees it at once."""

    def __init__(self, folder: RunFolder) -> None:
        self._file: TextIO = (folder.path / METRICS).open("a", encoding="utf-8")
        self._board = _tensorboard(folder)
        self._on_board: dict[str, float] = {}  # when each number was last shown there

    def write(self, step: int, epoch: int, **numbers: float) -> None:
        now = time.time()
        # JSON has no NaN and no infinity: null, so that every reader can read the line.
        finite = {name: value if math.isfinite(value) else None for name, value in numbers.items()}
        record: dict[str, Any] = {"time": round(now, 3), "step": step, "epoch": epoch, **finite}
        self._file.write(json.dumps(record, allow_nan=False) + "\n")
        self._file.flush()
        if self._board is None:
            return
        for name, value in numbers.items():
            if now - self._on_board.get(name, 0.0) >= BOARD_SECONDS:
                self._on_board[name] = now
                self._board.add_scalar(name, value, step)

    def close(self) -> None:
        self._file.close()
        if self._board is not None:
            self._board.close()


def _tensorboard(folder: RunFolder) -> Any:
    """A TensorBoard writer, or None where the extra ``brim[tensorboard]`` is not installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(log_dir=str(folder.path))
