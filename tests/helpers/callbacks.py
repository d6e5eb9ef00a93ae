"""Callbacks that several tests hand to a trainer."""

from typing import Any

import brim


class StopAt(brim.Callback):
    """Stops the run after a step."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, trainer: brim.Trainer, step: int, loss: Any) -> None:
        if step == self.step:
            trainer.stop("for the test")
