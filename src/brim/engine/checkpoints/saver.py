"""Checkpoints written in the background, while training goes on."""

import time
from collections.abc import Callable, Sequence
from concurrent import futures
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
LITTLE = 16 << 20  # bytes: there is room for so few, and asking the system takes longer than copying them
Held = TypeVar("Held", Moment, PartedWeights)


class Saver:
    """Copies the state to host memory, which is quick, and lets a thread write the copies, one after the other.

    While a checkpoint is being written the next is left out, with a line that says so; best weights are waited for.
    So there are copies of one of each at most. Where host memory has no room for a copy, training waits for the disk.
    A full disk ends no run: what was saved before stays good.
    """

    def __init__(self, checkpoints: Checkpoints, say: Callable[[str], None], warn: Callable[[str], None]) -> None:
        self.checkpoints = checkpoints
        self.say = say
        self.warn = warn
        self._writer: futures.ThreadPoolExecutor | None = None  # until all is written
        self._best: futures.Future[None] | None = None
        self._checkpoint: futures.Future[None] | None = None
        self._ahead: futures.Future[None] | None = None  # best weights that are written before that checkpoint
        self._step = 0  # of that checkpoint
        self._began: float | None = None  # by the host's clock
        self._stores_frozen = False  # the last one
        self._troubles: list[RunFolderError] = []

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
        self._begin_copy()
        self._step, self._began, self._ahead = state.progress.step, None, self._best
        self._checkpoint = self._write(self.checkpoints.moment(state), self._write_checkpoint)
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
        if self._best is not None:
            futures.wait([self._best])
        self._begin_copy()
        write = self.checkpoints.save_end if is_end else self.checkpoints.save_best
        weights = self.checkpoints.frozen.part(model)
        self._best = self._write(weights, lambda copied: write(copied, step, ranked, is_best))

    def save_final(self, model: nn.Module | HostModel, step: int) -> None:
        """Keep these weights as those that the run ended with."""
        self._write_now(lambda: self.checkpoints.save_final(model, step))

    def wait(self) -> None:
        """Until everything is on the disk, or is known not to be."""
        if self._writer is not None:
            self._writer.shutdown()
        self._writer = self._best = self._checkpoint = self._ahead = None
        self._stores_frozen = False
        self.report()

    def report(self) -> None:
        """Say what went wrong since the last time."""
        while self._troubles:
            self.warn(f"{self._troubles.pop(0)}; training goes on, the checkpoints before are as they were")

    def _begin_copy(self) -> None:
        """Frozen weights are looked at again only once those of the last look are written."""
        if self._stores_frozen:
            self.wait()
        self.report()

    def _write(self, now: Held, write: Callable[[Held], object]) -> "futures.Future[None] | None":
        """Write a copy after what was handed over before; what cannot be copied is written while training waits."""
        copied = _copy(now)
        if copied is None:
            self._write_now(lambda: write(now))
            return None
        self._stores_frozen = bool((copied.weights if isinstance(copied, Moment) else copied).fresh)
        if self._writer is None:
            self._writer = futures.ThreadPoolExecutor(1, "brim-checkpoint")  # a program that ends waits for it
        try:
            return self._writer.submit(self._try, lambda: write(copied))
        except RuntimeError:  # the script's main thread has ended, and this one trains on: executors take no more work
            self._write_now(lambda: write(copied))
            return None

    def _write_now(self, write: Callable[[], object]) -> None:
        self.wait()
        self._try(write)
        self.report()

    def _write_checkpoint(self, moment: Moment) -> None:
        self._began = time.perf_counter()
        self.checkpoints.write(moment)

    def _goes_on_writing(self) -> bool:
        """Wait a moment for the last checkpoint; True where writing it goes on after that."""
        if self._checkpoint is None:
            return False
        if self._ahead is not None:
            futures.wait([self._ahead])  # without limit: they would leave one checkpoint out after another
        now = time.perf_counter()
        left = PATIENCE_S if self._began is None else max(0.0, self._began + PATIENCE_S - now)
        return bool(futures.wait([self._checkpoint], left).not_done)

    def _try(self, write: Callable[[], object]) -> None:
        try:
            write()
        except RunFolderError as error:
            self._troubles.append(error)
        except Exception as error:  # a state that cannot be pickled, no memory: a thread would tell nobody
            self._troubles.append(RunFolderError(f"cannot write a checkpoint: {type(error).__name__}: {error}"))


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
    needed = SPARE * now.size()
    return needed <= LITTLE or (free := available_memory()) is None or needed <= free
