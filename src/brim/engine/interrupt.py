"""Ctrl-C while training: the first asks for a clean stop, the second stops at once."""

import os
import signal
import threading
from types import FrameType
from typing import Any

MESSAGE = b"\nCtrl-C: stopping after this step, with a checkpoint (again: at once, without one)\n"
STDERR = 2


class Interrupt:
    """Turns SIGINT into a flag that the loop reads between steps.

    Outside the main thread Python does not allow signal handlers, so there Ctrl-C stays what it was.
    """

    def __init__(self) -> None:
        self.requested = False
        self._before: Any = None

    def __enter__(self) -> "Interrupt":
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
            self._before = None

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        os.write(STDERR, MESSAGE)  # a handler may run in the middle of a print, so it must not print itself
