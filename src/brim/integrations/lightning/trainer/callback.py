"""brim in Lightning's own trainer: a forecast before the first step, memory and shares of time in its loggers."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from brim.arguments.known import known_arguments
from brim.data import batch_length
from brim.data.randomness.generators import process_generators
from brim.engine.shares.host_shares import HostShares
from brim.engine.shares.recorded_shares import SharesRecorder, shares_recorder
from brim.errors import BrimError, CannotFit, ConfigError, first_line
from brim.hardware.cards import find_card
from brim.hardware.memory_use import memory_in_use
from brim.integrations.lightning.trainer.library import callback_class
from brim.integrations.lightning.trainer.memory_forecast import forecast, largest_batch
from brim.memory import Forecast
from brim.record import Journal
from brim.sizes import show_bytes

READING = "train_dataloader_next"  # of the loop that trains; the validation's has another name
PRECISIONS = {"32-true": "32", "bf16-mixed": "bf16-mixed", "16-mixed": "16-mixed", "bf16-true": "bf16-true"}
STRATEGIES = {"SingleDeviceStrategy": "single", "DDPStrategy": "ddp"}
Base: Any = callback_class()


class BrimCallback(Base):  # type: ignore[misc]
    """For ``lightning.Trainer(callbacks=[BrimCallback()])``.

    Before the first step it says how much memory the training will take, and whether it fits. While it trains, the
    loggers get ``memory_...`` in bytes and ``share/...``: where the time of steps goes, of which ``share/data_wait`` is
    waiting for batches. What it cannot do there is in docs/lightning.md.

    Args:
        card: the name of the card that the forecast is for; None for the one that the trainer computes on. On a CPU
            there is a forecast only for a card by name.
        refuse: whether a step that will not fit ends the run with a CannotFit; else a warning says so.
    """

    @known_arguments
    def __init__(self, card: str | None = None, refuse: bool = False) -> None:
        super().__init__()
        if card is not None:
            find_card(card)  # an unknown name is told here
        self.card = card
        self.refuse = refuse
        self.forecast: Forecast | None = None
        self._journal = Journal()
        self._shares: SharesRecorder = HostShares(computes_here=True)
        self._recording = ExitStack()
        self._profiler: Any = None
        self._has_forecast = False
        self._since = 0.0

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self._has_forecast = False
        device = trainer.strategy.root_device
        self._shares = shares_recorder(device, trainer.accumulate_grad_batches)
        self._recording.enter_context(self._shares.recording())
        self._profiler = trainer.profiler
        trainer.profiler = WatchedProfiler(trainer.profiler, self._shares.asks_for_batch, self._shares.got_batch)
        self._since = time.perf_counter()

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if not self._has_forecast:
            self._has_forecast = True
            self._forecast_step(trainer, pl_module, batch)
            self._since = time.perf_counter()
        self._shares.calls_step()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self._shares.ends_step()
        if (batch_idx + 1) % max(1, trainer.log_every_n_steps) == 0:
            self._write(trainer)

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        self._shares.pause()

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        self._shares.forget()  # the time since the last line is not that of steps alone
        self._since = time.perf_counter()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._close(trainer)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._close(trainer)

    def _close(self, trainer: Any) -> None:
        self._recording.close()
        if self._profiler is not None:
            trainer.profiler, self._profiler = self._profiler, None

    def _write(self, trainer: Any) -> None:
        now = time.perf_counter()
        shares, self._since = self._shares.take(now - self._since), now
        # Lightning copies batches in the stream that computes, so its copies are among the computing.
        copying = shares.pop("share/copy", 0.0)
        if "share/compute" in shares:
            shares["share/compute"] = round(shares["share/compute"] + copying, 4)
        numbers = {**memory_in_use(trainer.strategy.root_device), **shares}
        for logger in trainer.loggers:
            logger.log_metrics(numbers, step=trainer.global_step)

    def _forecast_step(self, trainer: Any, module: Any, batch: Any) -> None:
        """Whether a step over this batch will fit; a forecast that fails ends no run."""
        if self.card is None and trainer.strategy.root_device.type != "cuda":
            return
        try:
            settings = settings_of(trainer, self.card)
            with process_generators():
                self.forecast = forecast(module, batch, **settings)
        except Exception as error:
            reason = str(error) if isinstance(error, BrimError) else first_line(error)
            self._journal.warn(f"memory forecast failed: {reason}; continuing without it")
            return
        made, samples = self.forecast, batch_length(batch)
        told = f"a step with {samples} samples takes {show_bytes(made.reserved)} of the {show_bytes(made.limit)}"
        if made.fits:
            self._journal.say(f"memory forecast: {told} that torch can have on {made.card.name}")
            return
        sentence = (
            f"{told} that torch can have on {made.card.name}, so it will not fit; {_advice(module, batch, settings)}"
        )
        if self.refuse:
            raise CannotFit(sentence)
        self._journal.warn(sentence)


def settings_of(trainer: Any, card: str | None) -> dict[str, Any]:
    """What a trainer of Lightning's computes with, as a forecast takes it."""
    strategy, precision = type(trainer.strategy).__name__, str(trainer.precision)
    if strategy not in STRATEGIES or precision not in PRECISIONS:
        unknown = f"precision={precision!r}" if strategy in STRATEGIES else f"strategy {strategy}"
        raise ConfigError(f"nothing is known of {unknown} of Lightning's")
    clip = trainer.gradient_clip_val
    return {
        "card": card, "precision": PRECISIONS[precision], "gpus": trainer.world_size, "strategy": STRATEGIES[strategy],
        "accumulation": trainer.accumulate_grad_batches, "clip_norm": float(clip) if clip else None,
    }  # fmt: skip


def _advice(module: Any, batch: Any, settings: dict[str, Any]) -> str:
    try:
        return f"batches of {largest_batch(module, batch, **settings)} would"
    except BrimError as error:
        return str(error)


class WatchedProfiler:
    """A profiler of Lightning's, which hears everything as before, and two functions that hear of the reading."""

    def __init__(self, profiler: Any, asks: Callable[[], Any], has: Callable[[], Any]) -> None:
        self.profiler = profiler
        self._asks, self._has = asks, has

    def start(self, action_name: str) -> None:
        self.profiler.start(action_name)
        if READING in action_name:
            self._asks()

    def stop(self, action_name: str) -> None:
        if READING in action_name:
            self._has()
        self.profiler.stop(action_name)

    @contextmanager
    def profile(self, action_name: str) -> Iterator[str]:
        """As Lightning's own, which would call its own ``start`` and ``stop``."""
        try:
            self.start(action_name)
            yield action_name
        finally:
            self.stop(action_name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.profiler, name)
