"""What brim adds to somebody's transformers.Trainer, as one of its callbacks."""

import time
from typing import Any

from brim.arguments.known import known_arguments
from brim.engine.shares.host_shares import HostShares
from brim.errors import ConfigError, a_type, reason
from brim.hardware import memory_in_use
from brim.hardware.cards import find_card
from brim.integrations.accelerate.inner_loader import InnerLoader, check_shard, is_prepared, prefetcher_for
from brim.integrations.transformers.step_forecast import StepForecast, forecast_steps, why_not_forecast
from brim.memory.forecast import Forecast
from brim.record import Journal

try:
    from transformers import TrainerCallback
except ImportError as error:
    raise ConfigError("brim.integrations.transformers needs transformers; pip install 'brim[hf]' accelerate") from error


class BrimCallback(TrainerCallback):
    """Forecasts the memory of a transformers.Trainer before its first step, and adds numbers to its logs.

    The training is the same to the bit. What is logged beside the loss: ``share/data_wait`` and, on a CPU,
    ``share/compute`` (elsewhere ``share/rest``), of the time of steps without evaluations, checkpoints and logging; and
    the memory in use.

    Args:
        forecast: whether the memory of a step is forecast from the first batch, before it is computed.
        card: forecast for this card by name; None for the GPU that the training runs on.
        prefetch: whether batches are copied to the GPU on a stream of their own while it computes.

    >>> trainer = transformers.Trainer(model, args, callbacks=[BrimCallback()])  # doctest: +SKIP
    """

    @known_arguments
    def __init__(self, forecast: bool = True, card: str | None = None, prefetch: bool = False) -> None:
        for name, value in {"forecast": forecast, "prefetch": prefetch}.items():
            if not isinstance(value, bool):
                raise ConfigError(f"BrimCallback({name}=) is True or False, and this is {value!r}")
        if card is not None:
            find_card(card)  # an unknown name is told here
        self._asks, self._card, self._prefetches = forecast, card, prefetch
        self._found: StepForecast | None = None
        self._journal = Journal()
        self._clock = StepTimer(computes_here=False)

    @property
    def forecast(self) -> Forecast | None:
        """What was forecast, once the first batch was there."""
        return None if self._found is None else self._found.made

    def on_train_begin(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
        self._found, self._clock = None, StepTimer(computes_here=args.device.type == "cpu")
        loader = parts["train_dataloader"]
        if self._prefetches:
            check_shard(loader, "BrimCallback(prefetch=True)")
        why_not = why_not_forecast(args, self._card)
        if self._asks and why_not and (self._card is not None or args.device.type == "cuda"):
            self._journal.say(f"memory forecast left out: {why_not}")
        if not is_prepared(loader) or type(loader.base_dataloader) is InnerLoader:
            return

        def look(batch: Any) -> None:
            self._forecast_step(parts["model"], parts["optimizer"], batch, args)

        asks = self._asks and not why_not and state.is_world_process_zero
        moves = self._prefetches and loader.device is not None
        prefetcher = prefetcher_for(loader) if moves else None
        loader.base_dataloader = InnerLoader(loader.base_dataloader, prefetcher, self._clock, look if asks else None)

    def on_train_end(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
        loader = parts["train_dataloader"]
        if is_prepared(loader) and type(loader.base_dataloader) is InnerLoader:
            loader.base_dataloader = loader.base_dataloader.inner

    def on_step_begin(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
        self._clock.begins_step()

    def on_step_end(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
        self._clock.ends_step()

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **parts: Any) -> None:
        """Beside a training loss; an evaluation's numbers are left as they are."""
        if logs is None or "loss" not in logs:
            return
        numbers = {**self._clock.take(), **memory_in_use(args.device)}
        logs.update(numbers)
        if state.log_history:
            state.log_history[-1].update(numbers)

    def _forecast_step(self, model: Any, optimizer: Any, batch: Any, args: Any) -> None:
        """Nothing that goes wrong in a forecast ends a training: the training itself will show whether it fits."""
        try:
            self._found = forecast_steps(model, optimizer, batch, args, self._card)
        except Exception as error:  # operators nobody thought of, models that inspect their tensors
            self._journal.warn(f"memory forecast failed: {reason(error)}; continuing without it", "memory")
        else:
            tell = self._journal.say if self._found.fits else self._journal.warn
            tell(self._found.sentence(args.gradient_accumulation_steps), "memory")
        self._clock.begins_anew()


class StepTimer:
    """The time of steps, from asking for their batches to the end of the optimizer, and what of it is waiting."""

    def __init__(self, computes_here: bool) -> None:
        self._shares = HostShares(computes_here)
        self._began: float | None = None
        self._seconds = 0.0

    def asks_for_batch(self) -> None:
        self._began = self._began or time.perf_counter()
        self._shares.asks_for_batch()

    def got_batch(self) -> float:
        return self._shares.got_batch()

    def begins_anew(self) -> None:
        """What was done since the batch was asked for is no step's."""
        self._began = time.perf_counter()

    def begins_step(self) -> None:
        self._began = self._began or time.perf_counter()
        self._shares.calls_step()

    def ends_step(self) -> None:
        self._shares.ends_step()
        if self._began is not None:
            self._seconds += time.perf_counter() - self._began
        self._began = None

    def take(self) -> dict[str, float]:
        """The shares of the steps since the last time."""
        seconds, self._seconds = self._seconds, 0.0
        return self._shares.take(seconds) if seconds > 0 else {}


def attach(trainer: Any, **settings: Any) -> BrimCallback:
    """Add a :class:`BrimCallback` before the callbacks that report, so that TensorBoard or W&B get its numbers too.

    Args:
        trainer: a transformers.Trainer; a BrimCallback that it has already is replaced.
        settings: of the callback.

    Raises:
        ConfigError: for anything else, a model say.

    >>> callback = attach(trainer, card="NVIDIA H200")  # doctest: +SKIP
    """
    if not hasattr(trainer, "callback_handler"):
        raise ConfigError(f"attach takes a transformers.Trainer, and this is {a_type(trainer)}")
    callback = BrimCallback(**settings)
    trainer.remove_callback(BrimCallback)
    trainer.callback_handler.callbacks.insert(0, callback)
    return callback
