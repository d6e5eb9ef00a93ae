"""What a step is taken back with when it runs out of memory: everything that a failed try moves, and its batches."""

from collections.abc import Sequence
from typing import Any

from torch import nn

from brim.data import Batch
from brim.engine.components.precision import Precision
from brim.engine.oom.kept_window import KeptWindow
from brim.engine.oom.out_of_memory import is_out_of_memory, release_memory
from brim.engine.oom.snapshot import Snapshot
from brim.errors import CannotFit


class Rollback:
    """A snapshot of the moment before the step, and the window as it came. Neither fails for lack of memory."""

    def __init__(self, model: nn.Module | None, precision: Precision, loss_fn: Any) -> None:
        self.snapshot = Snapshot(model, precision, loss_fn)
        self.kept = KeptWindow()
        self._device = precision.device

    def take(self) -> None:
        """Remember this moment."""
        try:
            self.snapshot.take()
            return
        except Exception as error:
            if not is_out_of_memory(error):
                raise
        release_memory(self._device)
        self.snapshot.forget_buffers()  # those of the next step are small: copies are made anew

    def keep(self, window: Sequence[Batch]) -> None:
        """Keep the batches of the step as they are now."""
        try:
            self.kept.keep(window)
            return
        except Exception as error:
            if not is_out_of_memory(error):
                raise
        release_memory(self._device)
        self.kept.keep(window, copies=False)

    def restore(self) -> None:
        """Everything as it was before the failed try; or an error, where something cannot be put back."""
        lost = self.snapshot.beyond_repair()
        self.snapshot.restore()
        if not self.kept.restore():
            lost.append("the batch")
        if lost:
            raise CannotFit(
                f"memory ran out, and {', '.join(lost[:3])} had been changed in place by then, so the step cannot be "
                "made again; use a smaller batch_size, or change a copy (x = x - mean instead of x.sub_(mean))"
            )
