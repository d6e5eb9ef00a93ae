"""Which lines the thread that trains is on, looked at every few milliseconds from another thread."""

import inspect
import re
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from types import CodeType, FrameType

from brim.data.garbage import gc_paused
from brim.doctor.observation import LineTime
from brim.doctor.watching.lines.looks import by_time_spent
from brim.doctor.watching.lines.source_lines import (
    LoopLines,
    Place,
    is_own,
    line_of,
    loop_lines,
    no_grad_region,
    shown,
    stack,
    text_of,
)
from brim.doctor.watching.lines.thread_state import Spent, ThreadState, thread_state, wake_on_time

INTERVAL = 0.002
# A thread that wants to run gets its turn after this long. Python's 5 ms would move samples from Python code to the
# next call that lets others run, and with it the blame; a tenth of one still moves a tenth of a step of 1 ms.
SWITCH = 0.00001
MOST = 40  # lines that are told
# What writes or shows something, by how it is called: much of that happens in C, where no frame shows it.
SHOWS = re.compile(
    r"(^|[:;]\s*)print\(|\bsys\.stdout\.write\(|\bos\.fsync\("
    r"|\.(write|writelines|writerow|flush|add_scalars?|set_postfix|set_description|savefig|to_csv)\("
    r"|\b(json|yaml)\.dump\(|\bopen\([^)]*['\"][wax]\+?['\"]"
    r"|\b(logging|log|wandb|mlflow|writer|run)\.(info|debug|warning|error|log|log_metrics?|log_params?)\("
    r"|\b\w*[lL]ogger\.\w+\("
)
SAVES = re.compile(
    r"\b(np|numpy)\.save(z|z_compressed)?\(|\b(pickle|joblib|dill)\.dump\(|\bopen\([^)]*['\"][wax]\+?b"
    r"|\bos\.(replace|rename|remove|unlink)\(|\bshutil\.(copy\w*|move)\("
)
# Anybody's: it may copy weights and open files before it saves. A module that lists its weights saves nothing.
SAVE_FUNCTION = re.compile(r"_*(atomic_)?save(?!_to_state_dict)(_|$)")
LOG_FUNCTION = re.compile(r"_?(log|report|print|record|track)(_|$)|.*_(log|logs)$")  # of the user's own
HOOK = re.compile(r"on_[a-z]")  # of a callback or a module, as trainers call them
MAKES_BATCHES = ("on_before_batch_transfer", "on_after_batch_transfer")  # those of them that do
LOADER_FILES = ("/torch/utils/data/", "/brim/doctor/watching/feed/")
BY_FILE = (
    ("logging", ("/tqdm/", "/logging/", "/tensorboard", "/torch/utils/tensorboard/", "/wandb/", "/mlflow/", "/rich/",
                 "/loggers/", "/logger_connector/", "/csv.py", "/progress/", "/torch/monitor", "/comet_ml/", "/aim/",
                 "/torchmetrics/", "/sklearn/metrics/", "/matplotlib/", "/trackio/")),
    ("checkpoint", ("/torch/serialization.py", "/safetensors/", "/distributed/checkpoint/")),
    ("optimizer", ("/torch/optim/",)),
    # An optimizer's step and a loader's batch are names for a profiler, too: those are none of its work.
    ("profiler", ("/torch/profiler/", "/torch/autograd/profiler")),
    ("backward", ("/torch/autograd/",)),
)  # fmt: skip


Sample = tuple[str, Place | None, Place | None]  # what for, the line, and the region without gradients around it


class LineSampler:
    """Samples the thread that calls ``start`` until ``stop``.

    Args:
        in_evaluation: Whether a loader for evaluation is read.
        garbage: Seconds of garbage collection up to now. It comes at any line, and is none of that line's.
    """

    def __init__(self, in_evaluation: Callable[[], bool], garbage: Callable[[], float] = lambda: 0.0) -> None:
        self._in_evaluation, self._garbage = in_evaluation, garbage
        self._seconds: defaultdict[Sample, float] = defaultdict(float)
        self._waiting: defaultdict[Sample, float] = defaultdict(float)  # the part in which the thread waited
        self._spent: Spent | None = None
        self.usual: Spent | None = None  # of steps that nobody looked at
        self._state: ThreadState | None = None
        self._evaluating: set[Place] = set()  # regions without gradients in which modules are called
        self._loops: dict[CodeType, LoopLines] = {}
        self._step_places: dict[CodeType, int] = {}
        self._forward_places: dict[CodeType, int] = {}
        self._backward_places: defaultdict[CodeType, set[int]] = defaultdict(set)
        self._watched = threading.get_ident()
        self._going = threading.Event()
        self._thread: threading.Thread | None = None
        self._switch = sys.getswitchinterval()

    def note_step(self, frame: FrameType | None) -> None:
        """The stack in which a step ended: the functions in it contain the loop."""
        self._note(frame, self._step_places)

    def note_forward(self, frame: FrameType | None) -> None:
        """The stack in which the model was called."""
        self._note(frame, self._forward_places)

    def note_backward(self, frame: FrameType | None) -> None:
        """A stack in which a backward pass was called."""
        for found in stack(frame):
            if is_own(found.f_code.co_filename):
                self._backward_places[found.f_code].add(line_of(found))

    def start(self) -> None:
        backward = self._backward_places
        steps = {**{code: max(lines) for code, lines in backward.items()}, **self._step_places}
        self._loops = {
            code: loop_lines(code, line, self._forward_places.get(code), frozenset(backward.get(code, ())))
            for code, line in steps.items()
        }
        sys.setswitchinterval(SWITCH)
        self._watched, self._state = threading.get_ident(), thread_state()
        self._going.set()
        self._thread = threading.Thread(target=self._sample, name="brim-doctor", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._going.clear()
        if self._thread is not None:
            self._thread.join()
        if self._state is not None:
            self._state.close()
        sys.setswitchinterval(self._switch)

    def seen(self) -> tuple[LineTime, ...]:
        """Where the time went. What happens without gradients where models are called, and is not for the loss, is
        evaluation."""
        found: defaultdict[tuple[str, Place | None], float] = defaultdict(float)
        spent, looks = self._spent, dict(self._seconds)
        if spent is not None:
            looks = by_time_spent(looks, self._waiting, spent, ("forward", None, None), self.usual)
        for (kind, place, region), seconds in looks.items():
            found["evaluation" if region in self._evaluating and kind != "loader" else kind, place] += seconds
        total = sum(found.values()) or 1.0
        ordered = sorted((item for item in found.items() if item[1] > 0), key=lambda item: -item[1])[:MOST]
        return tuple(LineTime(shown(place), text_of(place), kind, part / total) for (kind, place), part in ordered)

    def _note(self, frame: FrameType | None, places: dict[CodeType, int]) -> None:
        for found in stack(frame):
            if is_own(found.f_code.co_filename):
                places[found.f_code] = line_of(found)

    def _sample(self) -> None:
        wake_on_time()
        state = self._state
        before, collected = time.perf_counter(), self._garbage()
        last: Sample = ("garbage", None, None)
        while self._going.is_set():
            time.sleep(INTERVAL)
            # A call of C's that keeps the interpreter to itself lets nobody look before it is over: the look right
            # after it stands for all of its time.
            is_waiting = state is not None and state.is_waiting()
            now, garbage = time.perf_counter(), self._garbage()
            key = self._look()
            if key is not None:
                left = now - before - (garbage - collected)
                # A look may come before the collector has told of its time: then that was given to the line before.
                self._seconds[key] += max(0.0, left)
                self._waiting[key] += max(0.0, left) * is_waiting
                self._seconds[last] = max(0.0, self._seconds[last] + min(0.0, left))
                self._seconds["garbage", None, None] += garbage - collected
                last = key
            before, collected = now, garbage
        self._spent = None if state is None else state.spent()

    def _look(self) -> Sample | None:
        """What that thread does now; its frames are not kept, or its variables would live as long."""
        # Python 3.11 collects while it makes the object of a frame that another thread runs in; what is called then
        # lets that thread go on, and it is gone with its frame before the object is made.
        with gc_paused():
            frame = sys._current_frames().get(self._watched)
            return None if frame is None else self.count(frame, 0.0)

    def count(self, frame: FrameType, seconds: float = INTERVAL) -> Sample:
        """One look at that thread, which stands for some time; what was seen."""
        kind, place = self.classify(frame)
        frames = list(stack(frame))
        region = self._region(frames)
        if region is not None and _in_module(frames):
            self._evaluating.add(region)
        self._seconds[kind, place, region] += seconds
        return kind, place, region

    def _region(self, frames: list[FrameType]) -> Place | None:
        """The code without gradients that runs, unless what it computes is for the loss (a teacher's answer)."""
        own = [frame for frame in frames if is_own(frame.f_code.co_filename)]
        looping = next((frame for frame in own if frame.f_code in self._loops), None)
        lines = LoopLines() if looping is None else self._loops[looping.f_code]
        if looping is not None and line_of(looping) in lines.heads | lines.data | lines.training:
            return None
        starts = ((frame, no_grad_region(frame.f_code, line_of(frame))) for frame in own)
        return next(((frame.f_code.co_filename, start) for frame, start in starts if start is not None), None)

    def classify(self, frame: FrameType) -> tuple[str, Place | None]:
        """What that thread does, and the line of the user's code that it does it for."""
        frames = list(stack(frame))
        own = [found for found in frames if is_own(found.f_code.co_filename)]
        place = (own[0].f_code.co_filename, line_of(own[0])) if own else None
        if self._in_evaluation():
            return "evaluation", place
        files = [found.f_code.co_filename for found in frames]
        if any(part in file for file in files for part in LOADER_FILES):
            return "loader", place
        if is_lightning_log(frames):
            return "logging", place
        if any(SAVE_FUNCTION.match(found.f_code.co_name) for found in frames):
            return "checkpoint", place
        for kind, parts in BY_FILE:
            if any(part in file for file in files for part in parts):
                return kind, place
        if _in_module(frames):
            return "forward", place
        return self._by_statement(frames, place), place

    def _is_logging(self, frames: list[FrameType]) -> bool:
        """Whether a line of the user's, from the innermost to that in the loop, prints or writes a record."""
        by_name = False
        for frame in (frame for frame in frames if is_own(frame.f_code.co_filename)):
            lines = self._loops.get(frame.f_code)
            if lines is not None and line_of(frame) in lines.heads:
                return False  # it gives batches, whatever it is called
            if is_printing(text_of((frame.f_code.co_filename, line_of(frame)))):
                return True
            by_name |= _is_log_function(frame)
            if lines is not None:
                break
        return by_name

    def _by_statement(self, frames: list[FrameType], place: Place | None) -> str:
        """By the statement that runs in the innermost function on the way to the step."""
        if SAVES.search(text_of(place)):
            return "checkpoint"
        if self._is_logging(frames):
            return "logging"
        if (hook := self._hook(frames)) is not None:
            return "data" if hook in MAKES_BATCHES else "python"
        gives_batches, called = False, ""
        for found in frames:
            lines = self._loops.get(found.f_code)
            if lines is None:
                gives_batches |= found.f_code not in self._forward_places and _is_own_generator(found.f_code)
                called = found.f_code.co_name
                continue
            gives_batches |= any((code.co_name, called) in lines.givers for code in self._forward_places)
            if gives_batches or line_of(found) in lines.heads or line_of(found) in lines.data:
                return "data"
            return "forward" if line_of(found) in lines.training or _in_torch(frames) else "python"
        return "forward"

    def _hook(self, frames: list[FrameType]) -> str | None:
        """The user's function that a trainer of some library calls beside the training, which runs."""
        for frame in frames:
            code, caller = frame.f_code, frame.f_back
            if code in self._step_places or code in self._forward_places:
                return None
            is_called = caller is not None and not is_own(caller.f_code.co_filename)
            if is_called and is_own(code.co_filename) and HOOK.match(code.co_name):
                return code.co_name
        return None


def _is_own_generator(code: CodeType) -> bool:
    """Whether it is a generator with a name: beside modules, ``model(next(batches))`` makes its batch there."""
    return bool(code.co_flags & inspect.CO_GENERATOR) and is_own(code.co_filename) and not code.co_name.startswith("<")


def _is_log_function(frame: FrameType) -> bool:
    return LOG_FUNCTION.match(frame.f_code.co_name) is not None


def _in_module(frames: list[FrameType]) -> bool:
    return any(frame.f_code.co_name in ("_call_impl", "_wrapped_call_impl") for frame in frames)


def _in_torch(frames: list[FrameType]) -> bool:
    """Whether the innermost code clips gradients or scales a loss: work that belongs to the training."""
    return any(part in frames[0].f_code.co_filename for part in ("/torch/nn/utils/", "/torch/amp/"))


def is_lightning_log(frames: list[FrameType]) -> bool:
    """``self.log`` of Lightning's modules."""
    return any(
        f.f_code.co_name in ("log", "log_dict") and "lightning" in f.f_code.co_filename for f in frames
    )  # fmt: skip


def is_printing(text: str) -> bool:
    """Whether a line prints, or writes a record.

    >>> is_printing("if step: print(loss)"), is_printing("json.dump(history, file)"), is_printing("x.log().sum()")
    (True, True, False)
    """
    return SHOWS.search(text) is not None
