"""Which lines the main thread is on, looked at every few milliseconds from another thread."""

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from types import CodeType, FrameType

from brim.doctor.observation import LineTime
from brim.doctor.watching.source_lines import (
    LoopLines,
    Place,
    is_own,
    loop_lines,
    shown,
    stack,
    text_of,
)

INTERVAL = 0.002
# A thread that wants to run gets its turn after this long. Python's 5 ms would move samples from Python code to the
# next call that lets others run, and with it the blame.
SWITCH = 0.0001
MOST = 40  # lines that are told
LOADER_FILES = ("/torch/utils/data/", "/brim/doctor/watching/feed/loader_hooks.py")
BY_FILE = (
    ("logging", ("/tqdm/", "/logging/", "/tensorboard", "/torch/utils/tensorboard/", "/wandb/", "/mlflow/", "/rich/",
                 "/loggers/", "/logger_connector/", "/csv.py", "/progress/", "/torch/monitor", "/comet_ml/", "/aim/",
                 "/torchmetrics/", "/sklearn/metrics/", "/matplotlib/", "/trackio/")),
    ("checkpoint", ("/torch/serialization.py", "/safetensors/", "/distributed/checkpoint/")),
    ("optimizer", ("/torch/optim/",)),
    ("backward", ("/torch/autograd/",)),
)  # fmt: skip


class LineSampler:
    """Samples the main thread between ``start`` and ``stop``."""

    def __init__(self, in_evaluation: Callable[[], bool]) -> None:
        self._in_evaluation = in_evaluation
        self._counts: Counter[tuple[str, Place | None]] = Counter()
        self._loops: dict[CodeType, LoopLines] = {}
        self._step_places: dict[CodeType, int] = {}
        self._forward_places: dict[CodeType, int] = {}
        self._main = threading.main_thread().ident or 0
        self._going = threading.Event()
        self._thread: threading.Thread | None = None
        self._switch = sys.getswitchinterval()

    def note_step(self, frame: FrameType | None) -> None:
        """The stack in which a step ended: the functions in it contain the loop."""
        self._note(frame, self._step_places)

    def note_forward(self, frame: FrameType | None) -> None:
        """The stack in which the model was called."""
        self._note(frame, self._forward_places)

    def start(self) -> None:
        self._loops = {
            code: loop_lines(code, line, self._forward_places.get(code)) for code, line in self._step_places.items()
        }
        sys.setswitchinterval(SWITCH)
        self._going.set()
        self._thread = threading.Thread(target=self._sample, name="brim-doctor", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._going.clear()
        if self._thread is not None:
            self._thread.join()
        sys.setswitchinterval(self._switch)

    def seen(self) -> tuple[LineTime, ...]:
        total = sum(self._counts.values()) or 1
        return tuple(
            LineTime(shown(place), text_of(place), kind, count / total)
            for (kind, place), count in self._counts.most_common(MOST)
        )

    def _note(self, frame: FrameType | None, places: dict[CodeType, int]) -> None:
        for found in stack(frame):
            if is_own(found.f_code.co_filename):
                places[found.f_code] = found.f_lineno

    def _sample(self) -> None:
        while self._going.is_set():
            time.sleep(INTERVAL)
            frame = sys._current_frames().get(self._main)
            if frame is not None:
                self._counts[self.classify(frame)] += 1
            del frame  # or the main thread's variables live as long as this one sleeps

    def classify(self, frame: FrameType) -> tuple[str, Place | None]:
        """What the main thread does, and the line of the user's code that it does it for."""
        frames = list(stack(frame))
        own = [found for found in frames if is_own(found.f_code.co_filename)]
        place = (own[0].f_code.co_filename, own[0].f_lineno) if own else None
        if self._in_evaluation():
            return "evaluation", place
        files = [found.f_code.co_filename for found in frames]
        if any(part in file for file in files for part in LOADER_FILES):
            return "loader", place
        if is_lightning_log(frames):
            return "logging", place
        for kind, parts in BY_FILE:
            if any(part in file for file in files for part in parts):
                return kind, place
        if any(f.f_code.co_name in ("_call_impl", "_wrapped_call_impl") for f in frames):
            return "forward", place
        return self._by_statement(frames, place), place

    def _by_statement(self, frames: list[FrameType], place: Place | None) -> str:
        """By the statement that runs in the innermost function on the way to the step."""
        if place is not None and is_printing(text_of(place)):
            return "logging"
        for found in frames:
            lines = self._loops.get(found.f_code)
            if lines is None:
                continue
            if found.f_lineno in lines.heads or found.f_lineno in lines.data:
                return "data"
            return "forward" if found.f_lineno in lines.training or _in_torch(frames) else "python"
        return "forward"


def _in_torch(frames: list[FrameType]) -> bool:
    """Whether the innermost code clips gradients or scales a loss: work that belongs to the training."""
    return any(part in frames[0].f_code.co_filename for part in ("/torch/nn/utils/", "/torch/amp/"))


def is_lightning_log(frames: list[FrameType]) -> bool:
    """``self.log`` of Lightning's modules."""
    return any(
        f.f_code.co_name in ("log", "log_dict") and "lightning" in f.f_code.co_filename for f in frames
    )  # fmt: skip


def is_printing(text: str) -> bool:
    """Whether a line prints: that happens in C, where no frame shows it.

    >>> is_printing('print(f"loss {loss}")'), is_printing("pprint = 3")
    (True, False)
    """
    return text.startswith("print(") or "sys.stdout.write(" in text
