"""How many samples a second a trainer makes, timed while it trains as it does for its user."""

import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from brim.data import Batch, Feed, as_feed, batch_length
from brim.engine.step.threads import ThreadTrial
from brim.engine.trainer import Trainer, run_of
from brim.errors import ConfigError

WARM_UP, LONGEST_WARM_UP = 20, 600  # batches; trying three thread counts takes up to 504


@dataclass(frozen=True)
class StepRate:
    """What was measured. ``threads`` are those of the CPU; ``gpu_busy`` is the share of the time with kernels.

    ``memory``: bytes that torch had reserved on the GPU at most in the time that was measured, graphs included.
    """

    samples_per_second: float
    threads: int
    gpu_busy: float | None = None
    memory: int | None = None


def measure_step_rate(trainer: Trainer, seconds: float, profiled: bool = False) -> StepRate:
    """Train for ``seconds`` after a warm-up, leaving nothing on the disk; the trainer is used up by it.

    The device is waited for at the start and at the end only, so whatever lies between (reading the data, turns of an
    epoch, the log) counts. Capturing does not: it happens once in a run, which is longer than this. Batches should have
    one shape, else compiling for another one counts as well.
    """
    feed = trainer.train_data = as_feed(trainer.train_data)
    clock = _Clock(trainer, seconds, profiled and trainer.device.type == "cuda")
    with tempfile.TemporaryDirectory(prefix="brim-step-rate-") as folder, _ticking(feed, clock):
        trainer.run_dir = Path(folder) / "run"
        try:
            trainer.fit()
        except _TimeIsOver as over:
            return over.rate
        finally:
            clock.close()
    raise ConfigError(
        f"the run ended after {clock.batches:,} batches, before it could be timed; give it more epochs or less seconds"
    )


class _TimeIsOver(Exception):
    """Ends a run where it is: without the evaluation and the checkpoint that a run which stops would end with."""

    def __init__(self, rate: StepRate) -> None:
        super().__init__()
        self.rate = rate


class _Clock:
    """Counts the samples of the batches after the warm-up, until the time is over."""

    def __init__(self, trainer: Trainer, seconds: float, profiled: bool) -> None:
        self.trainer, self.seconds = trainer, seconds
        self.batches = self.samples = 0
        self.began: float | None = None
        self.capturing = 0.0
        activities = [torch.profiler.ProfilerActivity.CUDA]
        self._profile = torch.profiler.profile(activities=activities) if profiled else None
        self._profiles = False

    def tick(self, batch: Batch) -> None:
        """The step with this batch was handed to the device."""
        self.batches += 1
        if self.began is None:
            if self._is_warm():
                self._start()
            return
        self.samples += batch_length(batch)
        if time.perf_counter() - self.began >= self.seconds:
            raise _TimeIsOver(self._stop(self.began))

    def _is_warm(self) -> bool:
        if self.batches < WARM_UP:
            return False
        if is_settled(self.trainer):
            return True
        if self.batches < LONGEST_WARM_UP:
            return False
        if self.trainer.settings.capture == "require":
            raise ConfigError(f"capture='require', and no step was captured in the first {self.batches} batches")
        return True

    def _start(self) -> None:
        if self._profile is not None:
            self._profile.start()
            self._profiles = True
        self._wait_for_device()
        if self.trainer.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.trainer.device)
        self.capturing = self.trainer.captured.seconds
        self.began = time.perf_counter()

    def _stop(self, began: float) -> StepRate:
        self._wait_for_device()
        took = time.perf_counter() - began
        self.close()
        busy = None
        if self._profile is not None:
            kernels = sum(event.self_device_time_total for event in self._profile.key_averages()) / 1e6
            busy = min(1.0, kernels / took)  # kernels of several streams may overlap
        took -= self.trainer.captured.seconds - self.capturing
        device = self.trainer.device
        memory = torch.cuda.max_memory_reserved(device) if device.type == "cuda" else None
        return StepRate(self.samples / took, torch.get_num_threads(), busy, memory)

    def close(self) -> None:
        """Stop profiling: torch allows one profile at a time."""
        if self._profile is not None and self._profiles:
            self._profile.stop()
            self._profiles = False

    def _wait_for_device(self) -> None:
        if self.trainer.device.type != "cpu":
            torch.accelerator.synchronize(self.trainer.device)


def is_settled(trainer: Trainer) -> bool:
    """Whether a run has found out how it makes its steps: captured or not, and with how many CPU threads."""
    run, report = run_of(trainer), trainer.captured
    tries_threads = run is not None and isinstance(run.step, ThreadTrial) and bool(run.step.schedule)
    return bool(report.captured or report.reason) and not tries_threads


@contextmanager
def _ticking(feed: Feed, clock: _Clock) -> Iterator[None]:
    """Let the clock count batches as the next ones are asked for: a callback would be another way to train."""
    batches, on_ctrl_c = feed.batches, signal.getsignal(signal.SIGINT)

    def ticking(*arguments: Any, **settings: Any) -> Iterator[Batch]:
        # A run takes Ctrl-C for a wish to go on later. There is nothing here to go on with, so it ends at once.
        if on_ctrl_c is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, on_ctrl_c)
        for batch in batches(*arguments, **settings):
            yield batch
            clock.tick(batch)

    vars(feed)["batches"] = ticking
    try:
        yield
    finally:
        del vars(feed)["batches"]
