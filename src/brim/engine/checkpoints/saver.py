"""Checkpoints written in the background, while training goes on."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from torch import nn

from brim.engine.checkpoints.checkpoint import Checkpoints, Moment
from brim.engine.checkpoints.frozen_weights import PartedWeights
from brim.engine.oom.out_of_memory import is_out_of_memory
from brim.engine.run_state.training_state import TrainingState
from brim.engine.state.host_copy import HostModel
from brim.errors import RunFolderError
from brim.hardware.host import available_memory

PATIENCE_S = 1.0  # a save that takes no longer than this is waited for, rather than the next one left out
SPARE = 2  # times the state must be free in host memory for a copy of it to be made
Held = TypeVar("Held", Moment, PartedWeights)


class Saver:
    """Copies the state to host memory, which is quick, and lets a thread write the copy, which is not.

    While one is being written the next is left out, with a line that says so. Where host memory has no room for a copy,
    training waits for the disk. A full disk ends no run: what was saved before stays good.
    """

    def __init__(self, checkpoints: Checkpoints, say: Callable[[str], None], warn: Callable[[str], None]) -> None:
        self.checkpoints = checkpoints
        self.say = say
        self.warn = warn
        self._thread: threading.Thread | None = None
        self._step = 0
        self._began = 0.0  # by the host's clock
        self._writes_best = False
        self._trouble: RunFolderError | None = None

    def begin(self, state: TrainingState) -> None:
        """A run begins with this state: from here on it is known which of its weights do not move."""
        self.checkpoints.frozen.begin(lambda: state.model, dict(state.weights().state_dict()))

    def save(self, state: TrainingState) -> bool:
        """Write a checkpoint of this moment; False where it was left out."""
        if self._goes_on_writing():
            self.say(
                f"the checkpoint of step {state.progress.step:,} is left out: that of step {self._step:,} is still "
                "being written"
            )
            return False
        self._step, self._writes_best = state.progress.step, False
        self._write(self.checkpoints.moment(state), self.checkpoints.write)
        return True

    def save_best(
        self,
        model: nn.Module | HostModel,
        step: int,
        ranked: Sequence[int] = (),
        is_best: bool = True,
        is_end: bool = False,
    ) -> None:
        """Keep these weights as the best so far. Never left out: what is called the best must be the best."""
        self.wait()
        self._writes_best = True
        write = self.checkpoints.save_end if is_end else self.checkpoints.save_best
        self._write(self.checkpoints.frozen.part(model), lambda weights: write(weights, step, ranked, is_best))

    def save_final(self, model: nn.Module | HostModel, step: int) -> None:
        """Keep these weights as those that the run ended with."""
        self.wait()
        self._try(lambda: self.checkpoints.save_final(model, step))
        self.report()

    def wait(self) -> None:
        """Until everything is on the disk, or is known not to be."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self.report()

    def report(self) -> None:
        """Say what went wrong since the last time."""
        if self._trouble is not None:
            trouble, self._trouble = self._trouble, None
            self.warn(f"{trouble}; training goes on, the checkpoints before are as they were")

    def _write(self, now: Held, write: Callable[[Held], object]) -> None:
        """Write a copy in the background; what cannot be copied is written while training waits."""
        copied = _copy(now)
        if copied is None:
            self._try(lambda: write(now))
            self.report()
        else:
            self._start(lambda: write(copied))

    def _goes_on_writing(self) -> bool:
        """Wait a moment for the last save; True where it goes on after that, else it is over and reported."""
        if self._thread is not None:
            # Best weights are waited for: leaving a checkpoint out because of them would leave out one after another.
            left = None if self._writes_best else max(0.0, self._began + PATIENCE_S - time.perf_counter())
            self._thread.join(left)
            if self._thread.is_alive():
                return True
            self._thread = None
        self.report()
        return False

    def _start(self, write: Callable[[], object]) -> None:
        self._began = time.perf_counter()
        # Not a daemon: a program that ends meanwhile waits for the checkpoint instead of tearing it.
        self._thread = threading.Thread(target=self._try, args=(write,), name="brim-checkpoint")
        self._thread.start()

    def _try(self, write: Callable[[], object]) -> None:
        try:
            write()
        except RunFolderError as error:
            self._trouble = error
        except Exception as error:  # a state that cannot be pickled, no memory: a thread would tell nobody
            self._trouble = RunFolderError(f"cannot write a checkpoint: {type(error).__name__}: {error}")


def _copy(now: Held) -> Held | None:
    """The same in host memory; None where there is no room for it."""
    if not has_room_for_copy(now):
        return None
    try:
        return now.on_host()
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        return None


def has_room_for_copy(now: Moment | PartedWeights) -> bool:
    """Whether host memory can hold a copy of this beside everything else."""
    free = available_memory()
    return free is None or SPARE * now.size() <= free
