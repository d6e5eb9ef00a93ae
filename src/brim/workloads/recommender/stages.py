"""Training in stages: say, first with cached encodings of a frozen encoder, then with the encoder trained too.

It is one run. Weights and the optimizer's state go on from stage to stage; what is thawed joins the optimizer then, as
if it had been there all along, and a run that is resumed goes on in the stage that it had reached.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch.optim import Optimizer

from brim.engine import Trainer
from brim.engine.components.parameter_groups import LATE
from brim.engine.control.callbacks import Callback
from brim.engine.evaluation.monitor import Monitor, choose_monitor
from brim.errors import ConfigError
from brim.workloads.recommender.gpt2_recommender import GPT2RecommenderEnhanced

ENCODER = "encoder"  # the part of the model whose parameters have a learning rate of their own


@dataclass(frozen=True)
class Stage:
    """Args:
    epochs: passes over the training data, at most.
    use_cache: whether encodings are kept.
    freeze_gpt2: whether the encoder is left as it is.
    lr: the learning rate of all but the encoder.
    encoder_lr: that of the encoder.
    """

    epochs: int
    use_cache: bool
    freeze_gpt2: bool
    lr: float
    encoder_lr: float


class Stages(Callback):
    """Takes a recommender through its stages.

    Args:
        model: what is trained.
        stages: one after the other.
        patience: evaluations in a row without a better one after which a stage ends, and the next begins.
    """

    def __init__(self, model: GPT2RecommenderEnhanced, stages: Sequence[Stage], patience: int | None = None) -> None:
        if not stages:
            raise ConfigError("stages: there must be at least one")
        self.model, self.stages, self.patience = model, tuple(stages), patience
        self.current, self.epochs_done, self.since_best = 0, 0, 0
        self.best: float | None = None
        self._switch()

    def on_fit_start(self, trainer: Trainer) -> None:
        self._begin(trainer)

    def on_epoch_start(self, trainer: Trainer, epoch: int) -> None:
        if self._is_over() and self.current + 1 < len(self.stages):
            self.current += 1
            self.epochs_done, self.since_best, self.best = 0, 0, None
            self._begin(trainer)

    def on_evaluate(self, trainer: Trainer, metrics: dict[str, float]) -> None:
        monitor = monitor_of(trainer)
        value = metrics.get(monitor.name)
        if value is None:
            return
        is_better = self.best is None or (value > self.best if monitor.higher_is_better else value < self.best)
        self.best, self.since_best = (value, 0) if is_better else (self.best, self.since_best + 1)

    def on_epoch_end(self, trainer: Trainer, epoch: int) -> None:
        self.epochs_done += 1
        is_last = self.current + 1 == len(self.stages)
        if is_last and self._is_over() and epoch < trainer.settings.epochs:  # at the last epoch the run ends by itself
            trainer.stop(f"stage {len(self.stages)} of {len(self.stages)} is over")

    def state_dict(self) -> dict[str, Any]:
        return {
            "current": self.current, "epochs_done": self.epochs_done, "since_best": self.since_best, "best": self.best,
        }  # fmt: skip

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.current = min(int(state["current"]), len(self.stages) - 1)
        self.epochs_done, self.since_best = int(state["epochs_done"]), int(state["since_best"])
        self.best = state["best"]
        self._switch()

    def _is_over(self) -> bool:
        has_waited = self.patience is not None and self.since_best >= self.patience
        return self.epochs_done >= self.stages[self.current].epochs or has_waited

    def _begin(self, trainer: Trainer) -> None:
        self._switch()
        stage = self.stages[self.current]
        for optimizer in trainer.optimizers:
            set_rates(self.model, optimizer, stage)
        if trainer.ranks.is_first:
            texts = "cached encodings" if stage.use_cache else "texts encoded in every step"
            encoder = "encoder frozen" if stage.freeze_gpt2 else f"encoder trained at lr {stage.encoder_lr:g}"
            trainer.journal.say(
                f"stage {self.current + 1} of {len(self.stages)}: {texts}, {encoder}, the rest at lr {stage.lr:g}",
                "stages",
            )

    def _switch(self) -> None:
        """Let the model be as the stage wants it; setting the cache empties it, so only where it changes."""
        stage, model = self.stages[self.current], self.model
        if model.use_cache and not stage.use_cache:
            model.use_cache = False  # before the encoder is thawed
        model.freeze_gpt2 = stage.freeze_gpt2
        if stage.use_cache and not model.use_cache:
            model.use_cache = True


def staged_optimizer(optimizer: str | dict[str, Any] | None, lr: float) -> dict[str, Any]:
    """The optimizer with a group of its own for the encoder. Stages set the rates: here they must only not be equal."""
    wanted = {"name": optimizer or "AdamW"} if not isinstance(optimizer, dict) else dict(optimizer)
    if "lr_of" in wanted or "layer_decay" in wanted:
        raise ConfigError("stages: have lr and encoder_lr, so optimizer.lr_of and layer_decay cannot be used with them")
    return {**wanted, "lr_of": {f"{ENCODER}.*": math.nextafter(lr, 0.0)}}


def set_rates(model: GPT2RecommenderEnhanced, optimizer: Optimizer, stage: Stage) -> None:
    """Give each group the rate of the stage: that of the encoder, or of the rest."""
    encoder = {id(parameter) for parameter in model.encoder.parameters()}
    for group in optimizer.param_groups:
        names = group.get(LATE, [])
        is_encoder = any(id(parameter) in encoder for parameter in group["params"]) or (
            not group["params"] and any(name.startswith(f"{ENCODER}.") for name in names)
        )
        group["lr"] = stage.encoder_lr if is_encoder else stage.lr


def monitor_of(trainer: Trainer) -> Monitor:
    """What decides which evaluation is the best."""
    data, settings = trainer.eval_data, trainer.settings
    return choose_monitor(Monitor(data.monitor, data.higher_is_better), settings.monitor, settings.mode, {})
