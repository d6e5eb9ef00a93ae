"""Numbers of a run for TensorBoard."""

import time
from pathlib import Path
from typing import Any

from brim.record.loggers.run_facts import generators_kept

HELD_SECONDS = 10.0  # its import takes 0.3 s: a tenth of a run of some seconds, and nothing of a longer one
BOARD_SECONDS = 1.0  # TensorBoard takes 60 us a number, and nobody looks at more than one point a second


class TensorBoardLogger:
    """Scalars for TensorBoard, at most one of a name in a second. Those of the first seconds are held until then."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writer: Any = None
        self._shown: dict[str, float] = {}  # when each number was last written
        self._held: list[tuple[str, float, int, float]] = []  # name, value, step and time, until there is a writer

    def write(self, step: int, epoch: int, numbers: dict[str, float]) -> None:
        now = time.time()
        for name, value in numbers.items():
            if now - self._shown.get(name, 0.0) >= BOARD_SECONDS:
                self._shown[name] = now
                if self._writer is None:
                    self._held.append((name, value, step, now))
                else:
                    self._writer.add_scalar(name, value, step)
        if self._held and now - self._held[0][-1] >= HELD_SECONDS:
            self.write_held()

    def write_held(self) -> None:
        """Write what was held, with the times of its own."""
        held, self._held = self._held, []
        if held and self._writer is None:
            self._writer = summary_writer(self._folder)
        for name, value, step, moment in held:
            self._writer.add_scalar(name, value, step, walltime=moment)

    def close(self) -> None:
        self.write_held()
        if self._writer is not None:
            self._writer.close()


def summary_writer(folder: Path) -> Any:
    """TensorBoard's own, imported only now."""
    with generators_kept():
        from torch.utils.tensorboard import SummaryWriter
    return SummaryWriter(log_dir=str(folder))
