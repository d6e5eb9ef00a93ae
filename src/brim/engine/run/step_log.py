"""The numbers of the steps: kept on the device, read and written down every so often."""

import math
import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch.optim import Optimizer

from brim.data import FeedTimes
from brim.engine.checkpoints.progress import Progress
from brim.engine.step.nonfinite import BadStep, refuse
from brim.hardware import memory_in_use
from brim.record import MetricsFile, ProgressBar

MEMORY_SECONDS = 0.5


class StepLog:
    """Collects losses without reading them; every ``log_every`` steps the device is asked for all of them at once.

    On the CPU a loss is read at every step, since that waits for nothing: a bad one is found at once.
    """

    def __init__(
        self,
        file: MetricsFile,
        bar: ProgressBar,
        optimizer: Optimizer,
        log_every: int,
        device: torch.device,
        feed_times: FeedTimes | None = None,
        on_nonfinite: Callable[[BadStep], None] | None = None,
    ) -> None:
        self.file = file
        self.bar = bar
        self.optimizer = optimizer
        self.log_every = log_every
        self.device = device
        self.feed_times = feed_times or FeedTimes()
        self.on_nonfinite = on_nonfinite or refuse
        self.reads_each_loss = device.type == "cpu"
        self._memory_seen = 0.0
        self.epoch_losses: list[float] = []
        self._steps: list[tuple[Tensor | float, int, int]] = []  # (loss, samples in the step, position after it)
        self._since = time.perf_counter()

    def add(self, loss: Tensor, samples: int, progress: Progress) -> None:
        """Take in the loss of a step. Costs a list entry, except where a number is due."""
        value = loss.item() if self.reads_each_loss else loss
        self._steps.append((value, samples, progress.position))
        if progress.step % self.log_every == 0 or (self.reads_each_loss and not math.isfinite(value)):
            self.flush(progress)
        elif self.bar.is_visible:
            self.bar.show(progress.step, progress.epoch_number)

    def flush(self, progress: Progress) -> None:
        """Read what has been collected, and write it down."""
        if not self._steps:
            return
        losses = self._read_losses()
        if not math.isfinite(sum(losses)):
            losses = self._without_bad_numbers(losses, progress)
        seconds = time.perf_counter() - self._since
        mean = sum(losses) / len(losses) if losses else None
        rate = sum(samples for _, samples, _ in self._steps) / seconds
        lr = float(self.optimizer.param_groups[0]["lr"])
        feed = {f"feed/{part}_ms": value for part, value in self.feed_times.take().items()}
        numbers = {"lr": lr, "samples_per_second": round(rate, 1), **feed, **self._memory()}
        if mean is not None:
            numbers = {"loss": mean, **numbers}
        self.file.write(progress.step, progress.epoch_number, **numbers)
        if self.bar.is_visible:
            shown = "no finite loss" if mean is None else f"loss {mean:.4f}"
            self.bar.show(progress.step, progress.epoch_number, f"{shown}  {rate:,.0f} samples/s")
        self.epoch_losses.extend(losses)
        self.resume_clock()

    def _memory(self) -> dict[str, float]:
        """What memory is in use, twice a second at most: torch takes 50 us to say."""
        now = time.perf_counter()
        if now - self._memory_seen < MEMORY_SECONDS:
            return {}
        self._memory_seen = now
        return memory_in_use(self.device)

    def _read_losses(self) -> list[float]:
        if self.reads_each_loss:
            return [float(loss) for loss, _, _ in self._steps]
        losses: list[float] = torch.stack([torch.as_tensor(loss) for loss, _, _ in self._steps]).tolist()
        return losses

    def resume_clock(self) -> None:
        """Start a new stretch of steps; time spent between stretches (evaluation, checkpoints) is not theirs."""
        self._steps.clear()
        self._since = time.perf_counter()

    def forget(self) -> None:
        """The steps so far are made once more: their losses do not count."""
        self.epoch_losses = []
        self.resume_clock()

    def close_epoch(self) -> float | None:
        """The mean loss of the epoch's steps since the run was started or resumed; None where there were none."""
        losses, self.epoch_losses = self.epoch_losses, []
        return math.fsum(losses) / len(losses) if losses else None

    def close(self) -> None:
        self.bar.close()
        self.file.close()

    def _without_bad_numbers(self, losses: list[float], progress: Progress) -> list[float]:
        """The losses that are numbers; each of the others is heeded, which may end the run."""
        bad = [(index, loss) for index, loss in enumerate(losses) if not math.isfinite(loss)]
        for index, loss in bad:
            _, samples, position = self._steps[index]
            step = progress.step - len(losses) + index + 1
            self.on_nonfinite(BadStep(step, progress.epoch, position - samples, samples, loss))
        return [loss for loss in losses if math.isfinite(loss)]
