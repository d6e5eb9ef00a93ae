"""What a LightningModule sees as ``self.trainer`` while brim trains it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from brim.arguments.attributes import UnknownAttribute
from brim.engine.trainer import run_of
from brim.errors import ConfigError
from brim.integrations.lightning.modules.loop_state import SANITY, TRAIN, VALIDATE, LoopState
from brim.sizes import known_length

if TYPE_CHECKING:
    from brim.engine.trainer import Trainer


@dataclass
class ViewedRun:
    """What of a run the view shows."""

    loop: LoopState
    settings: dict[str, Any]  # as brim.Trainer takes them
    warn: Callable[[str], Any]  # says each sentence once
    datamodule: Any = None
    train_dataloader: Any = None
    val_dataloaders: Any = None
    trainer: Trainer | None = None
    optimization: Any = None


class TrainerView:
    """The attributes of Lightning's trainer that mean something here; any other is refused by its name.

    What changes is behind a function: whoever compares the state of a module from step to step sees the same view.
    """

    def __init__(self, run: ViewedRun) -> None:
        object.__setattr__(self, "_run", lambda: run)

    def __deepcopy__(self, memo: Any) -> TrainerView:
        return self  # a copy of the module is of the same run

    @property
    def current_epoch(self) -> int:
        return self._viewed.loop.epoch

    @property
    def global_step(self) -> int:
        return self._viewed.loop.step

    @property
    def max_epochs(self) -> int:
        """-1 where steps alone are counted, as in Lightning."""
        epochs: int = self._viewed.settings.get("epochs", -1)
        return epochs

    @property
    def max_steps(self) -> int:
        return self._viewed.settings.get("max_steps") or -1

    @property
    def accumulate_grad_batches(self) -> int:
        return accumulation_of(self._viewed.settings)

    @property
    def gradient_clip_val(self) -> float | None:
        return self._viewed.settings.get("clip_norm")

    @property
    def num_training_batches(self) -> int | float:
        batches = known_length(self._viewed.train_dataloader)
        limit = self._viewed.settings.get("limit_train_batches")
        return math.inf if batches is None else min(batches, limit or batches)

    @property
    def estimated_stepping_batches(self) -> int | float:
        steps, epochs = self._viewed.settings.get("max_steps"), self.max_epochs
        batches = self.num_training_batches
        if batches == math.inf or epochs == -1:
            return math.inf if steps is None else steps
        made = math.ceil(batches / self.accumulate_grad_batches) * epochs
        return made if steps is None else min(made, steps)

    @property
    def datamodule(self) -> Any:
        return self._viewed.datamodule

    @property
    def train_dataloader(self) -> Any:
        return self._viewed.train_dataloader

    @property
    def val_dataloaders(self) -> Any:
        return self._viewed.val_dataloaders

    @property
    def optimizers(self) -> list[Any]:
        made = self._viewed.optimization
        return [] if made is None else [made.optimizer]

    @property
    def strategy(self) -> Any:
        return StrategyView(self.optimizers)

    @property
    def lr_scheduler_configs(self) -> list[Any]:
        """One for each schedule of ``configure_optimizers``: ``self.lr_schedulers()`` gives a list of several."""
        made = self._viewed.optimization
        return [] if made is None else list(made.scheduled)

    @property
    def callback_metrics(self) -> dict[str, Any]:
        return self._viewed.loop.metrics

    logged_metrics = progress_bar_metrics = callback_metrics

    @property
    def logger(self) -> None:
        self._viewed.warn(
            "self.logger is None here, as with Trainer(logger=False): numbers of self.log go to the run folder and to "
            "what loggers= names"
        )

    @property
    def loggers(self) -> list[Any]:
        return []

    @property
    def log_dir(self) -> str | None:
        trainer = self._viewed.trainer
        run = None if trainer is None else run_of(trainer)
        return None if run is None else str(run.checkpoints.folder.parent)

    @property
    def training(self) -> bool:
        return self._viewed.loop.stage == TRAIN

    @property
    def validating(self) -> bool:
        return self._viewed.loop.stage == VALIDATE

    @property
    def sanity_checking(self) -> bool:
        return self._viewed.loop.stage == SANITY

    @property
    def should_stop(self) -> bool:
        trainer = self._viewed.trainer
        run = None if trainer is None else run_of(trainer)
        return run is not None and run.stopping.reason is not None

    @property
    def fast_dev_run(self) -> bool:
        return bool(self._viewed.settings.get("fast_dev_run"))

    testing = predicting = barebones = property(lambda self: False)
    is_global_zero = property(lambda self: True)
    world_size = num_devices = num_nodes = property(lambda self: 1)
    global_rank = local_rank = node_rank = property(lambda self: 0)
    callbacks = checkpoint_callbacks = early_stopping_callbacks = property(lambda self: [])
    progress_bar_callback = checkpoint_callback = early_stopping_callback = property(lambda self: None)

    def __setattr__(self, name: str, value: Any) -> None:
        trainer = self._viewed.trainer
        if name == "should_stop" and trainer is not None:
            if value:
                trainer.stop("the module set trainer.should_stop")
            return
        raise ConfigError(f"the module sets self.trainer.{name}, which changes nothing here; take it out")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise UnknownAttribute(
            f"the module reads self.trainer.{name}, which has no counterpart while brim trains it; take it out, or "
            "train with lightning.Trainer"
        )

    @property
    def _viewed(self) -> ViewedRun:
        viewed: ViewedRun = object.__getattribute__(self, "_run")()
        return viewed


class StrategyView:
    """What ``self.optimizers()`` asks for; nothing else of Lightning's strategies is here."""

    def __init__(self, optimizers: list[Any]) -> None:
        self._lightning_optimizers = optimizers

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise UnknownAttribute(
            f"the module asks for self.trainer.strategy.{name} (self.all_gather does), which has no counterpart here; "
            "take it out, or train with lightning.Trainer"
        )


def accumulation_of(settings: dict[str, Any]) -> int:
    """Batches of an accumulation window, by either name of the setting."""
    return settings.get("accumulate_grad_batches") or settings.get("gradient_accumulation_steps") or 1
