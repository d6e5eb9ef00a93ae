"""The numbers of the steps: kept on the device, read and written down every so often."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.optim import Optimizer

from brim.data import FeedTimes
from brim.engine.distributed.ranks import Ranks
from brim.engine.run_log.logged_numbers import LoggedNumbers
from brim.engine.run_state.progress import Progress
from brim.engine.shares.alerts import Alerts
from brim.engine.shares.device_shares import DeviceShares
from brim.engine.shares.host_shares import HostShares
from brim.engine.step.nonfinite import BadStep, refuse
from brim.hardware import memory_in_use
from brim.record import MetricsFile, ProgressBar

MEMORY_SECONDS = 0.5


@dataclass
class Window:
    """The steps that one line of metrics.jsonl is about."""

    losses: list[float] = field(default_factory=list)
    steps: int = 0
    samples: int = 0
    seconds: float = 0.0
    step: int = 0  # the last one
    epoch: int = 0

    def add(self, losses: list[float], steps: int, samples: int, seconds: float, progress: Progress) -> None:
        self.losses += losses
        self.steps += steps
        self.samples += samples
        self.seconds += seconds
        self.step, self.epoch = progress.step, progress.epoch_number

    @property
    def loss(self) -> float | None:
        """The mean; None where no loss was finite."""
        return math.fsum(self.losses) / len(self.losses) if self.losses else None

    @property
    def rate(self) -> float:
        """Samples a second, without what happened between the steps."""
        return self.samples / self.seconds

    @property
    def step_seconds(self) -> float:
        return self.seconds / self.steps


def is_due(step: int, log_every: int) -> bool:
    """Whether a window ends with this step: every so often, and after 1, 2, 4, ... steps of the first one.

    >>> [step for step in range(1, 31) if is_due(step, 10)]
    [1, 2, 4, 8, 10, 20, 30]
    """
    return step % log_every == 0 or (step < log_every and step & (step - 1) == 0)


@dataclass(eq=False)
class StepLog:
    """Collects losses without reading them; every ``log_every`` steps the device is asked for all of them at once.

    What is written are means over windows of ``log_every`` steps, whatever happens between them: evaluations and
    checkpoints read the losses before them, and cut no window. Of the first window parts are written, or a run would
    show nothing for as long. On the CPU a loss is read at every step, since that waits for nothing: a bad one is found
    at once.
    """

    file: MetricsFile
    bar: ProgressBar
    optimizer: Optimizer
    log_every: int
    device: torch.device
    shares: HostShares | DeviceShares
    feed_times: FeedTimes = field(default_factory=FeedTimes)
    on_nonfinite: Callable[[BadStep], None] = refuse
    logged: LoggedNumbers = field(default_factory=lambda: LoggedNumbers(Ranks()))  # by the loss and by callbacks
    alerts: Alerts | None = None
    _memory_seen: float = field(default=0.0, init=False)
    _steps: list[tuple[Tensor | float, int, int]] = field(default_factory=list, init=False)  # (loss, samples, position)
    _window: Window = field(default_factory=Window, init=False)
    _ends_window: bool = field(default=False, init=False)  # the last step
    _lr: float | Tensor = field(default=math.nan, init=False)  # that the last step was made with
    _since: float = field(default_factory=time.perf_counter, init=False)

    @property
    def reads_each_loss(self) -> bool:
        return self.device.type == "cpu"

    def begin(self) -> None:
        """The folder says what the run is about: loggers begin, and what they take for that is no step's time."""
        self.file.begin()
        self._begin_stretch()

    def note_lr(self) -> None:
        """Remember the rate that a step was made with, before a schedule or a callback sets that of the next one."""
        lr = self.optimizer.param_groups[0]["lr"]
        self._lr = lr.detach().clone() if isinstance(lr, Tensor) else lr  # schedules move tensors in place

    def add(self, loss: Tensor, samples: int, progress: Progress) -> None:
        """Take in the loss of a step. Costs a list entry, except where a number is due: a bad one is found here."""
        self.shares.ends_step()
        value = loss.item() if self.reads_each_loss else loss
        self._steps.append((value, samples, progress.position))
        self._ends_window = is_due(progress.step, self.log_every)
        if self._ends_window or (self.reads_each_loss and not math.isfinite(value)):
            self.read(progress)
        elif self.bar.is_visible:
            self.bar.show(progress.step, progress.epoch_number, float(value) if self.reads_each_loss else None)

    def read(self, progress: Progress) -> None:
        """Read the losses that have been collected: a bad one is found here."""
        if not self._steps:
            return
        losses, samples = self._read_losses(), sum(samples for _, samples, _ in self._steps)
        if not math.isfinite(sum(losses)):
            losses = self._without_bad_numbers(losses, progress)
        progress.epoch_loss += math.fsum(losses)
        progress.epoch_losses += len(losses)
        self._window.add(losses, len(self._steps), samples, time.perf_counter() - self._since, progress)
        self._begin_stretch()

    def write_if_due(self, progress: Progress) -> None:
        """Write the window that ends with this step, after callbacks: what they log of the step belongs to it."""
        if self._ends_window:
            self._ends_window = False
            self.flush(progress)

    def write_logged(self, progress: Progress) -> None:
        """Write what a callback has logged between two windows, which would else be told with the next one's steps."""
        if not self._window.steps and not self._steps:
            self.flush(progress)

    def flush(self, progress: Progress) -> None:
        """Read what has been collected, and write the window down, though it may be a short one."""
        self.read(progress)
        window, self._window = self._window, Window()
        logged = self.logged.means()
        if not window.samples:
            if logged:  # by a callback, between two windows or after the last step
                self.file.write(progress.step, progress.epoch_number, **logged)
            return
        lr = float(self._lr)
        feed = {f"feed/{part}_ms": value for part, value in self.feed_times.take().items()}
        pace = {"samples_per_second": round(window.rate, 1), "step_ms": round(window.step_seconds * 1e3, 4)}
        shares = self.shares.take(window.seconds)
        numbers = {"lr": lr, **pace, **feed, **shares, **self._memory(), **logged}
        if window.loss is not None:
            numbers = {"loss": window.loss, **numbers}
        self.file.write(window.step, window.epoch, **numbers)
        self.bar.tell(window.step, window.epoch, window.loss, lr, window.rate)
        if self.alerts is not None:
            self.alerts.look(shares, window.seconds)

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
        self.shares.pause()
        self._begin_stretch()

    def _begin_stretch(self) -> None:
        self._steps.clear()
        self._since = time.perf_counter()

    def forget(self) -> None:
        """The steps since the last checkpoint are made once more: their losses do not count."""
        self._window = Window()
        self.logged.forget()
        self.shares.forget()
        self._begin_stretch()

    def close(self) -> None:
        if self.alerts is not None:
            self.alerts.close()
        self.bar.close()
        self.file.close()

    def _without_bad_numbers(self, losses: list[float], progress: Progress) -> list[float]:
        """The losses that are numbers; each of the others goes to the policy for them, which may end the run."""
        bad = [(index, loss) for index, loss in enumerate(losses) if not math.isfinite(loss)]
        for index, loss in bad:
            _, samples, position = self._steps[index]
            step = progress.step - len(losses) + index + 1
            self.on_nonfinite(BadStep(step, progress.epoch, position - samples, samples, loss))
        return [loss for loss in losses if math.isfinite(loss)]
