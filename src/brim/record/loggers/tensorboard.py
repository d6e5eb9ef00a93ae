"""Numbers of a run for TensorBoard."""

import random
import time
from pathlib import Path
from typing import Any

BOARD_SECONDS = 1.0  # TensorBoard takes 60 us a number, and nobody looks at more than one point a second


class TensorBoardLogger:
    """Scalars for TensorBoard, at most one of a name in a second."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writer: Any = None  # until there is a number: its import takes longer than all else before the first step
        self._shown: dict[str, float] = {}  # when each number was last written

    def write(self, step: int, epoch: int, numbers: dict[str, float]) -> None:
        if self._writer is None:
            self._writer = _summary_writer(self._folder)
        now = time.time()
        for name, value in numbers.items():
            if now - self._shown.get(name, 0.0) >= BOARD_SECONDS:
                self._shown[name] = now
                self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


def _summary_writer(folder: Path) -> Any:
    drawn = random.getstate()  # libraries draw when they are first imported, and this is in the middle of a run
    try:
        from torch.utils.tensorboard import SummaryWriter
    finally:
        random.setstate(drawn)
    return SummaryWriter(log_dir=str(folder))
