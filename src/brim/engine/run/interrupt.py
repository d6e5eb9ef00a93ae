"""Being asked to stop while training: Ctrl-C, and the signals of schedulers and spot machines."""

import os
import signal
import threading
from contextlib import suppress
from types import FrameType
from typing import Any

MESSAGE = "\n{}: stopping after this step, with a checkpoint{}\n"
AGAIN = " (again: at once, without one)"
STDERR = 2
NAMES = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM"}
if hasattr(signal, "SIGUSR1"):  # not on Windows
    NAMES[signal.SIGUSR1] = "SIGUSR1"


class Interrupt:
    """Turns signals into a flag that the loop reads between steps; the second one stops at once.

    Outside the main thread Python does not allow signal handlers, so there they stay what they were. So does a handler
    that Python did not install, as that of a program which runs Python: Python could not put it back.
    """

    def __init__(self) -> None:
        self.requested = False
        self.by = ""
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Interrupt":
        if threading.current_thread() is threading.main_thread():
            self._before = {
                number: signal.signal(number, self._on_signal)
                for number in NAMES
                if signal.getsignal(number) is not None
            }
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        name = NAMES[signal.Signals(number)]
        if self.requested:
            if name == "Ctrl-C":
                raise KeyboardInterrupt
            return  # schedulers repeat themselves; the step that is under way is worth finishing
        self.requested, self.by = True, name
        # A handler may run in the middle of a print, so it must not print itself.
        with suppress(OSError):  # a full disk, where that is a file; raised here it would end the step under way
            os.write(STDERR, MESSAGE.format(name, AGAIN if name == "Ctrl-C" else "").encode())
