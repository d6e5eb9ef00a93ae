"""What a trainer needs to train a sharded model: the shards, and the parts of a run that know of them."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from brim.engine.components.loss import LossFunction
from brim.engine.components.precision import Precision
from brim.engine.components.settings import TrainerSettings
from brim.engine.components.two_pass import TwoPass
from brim.engine.distributed.collective_recovery import CollectiveRecovery
from brim.engine.distributed.ranks import Ranks
from brim.engine.evaluation.evaluation import Evaluator, MeanLoss
from brim.engine.fsdp.sharded_average import ShardedAverage
from brim.engine.fsdp.sharded_evaluation import OnWholeModel, ShardedLoss
from brim.engine.fsdp.sharded_guard import ShardedGuard
from brim.engine.fsdp.sharded_step import ShardedStep
from brim.engine.fsdp.shards import ShardedModel
from brim.engine.numbers.pass_notes import PassNotes
from brim.engine.run_state.training_state import TrainingState
from brim.engine.step.eager_step import EagerStep
from brim.errors import ConfigError

Tell = Callable[..., None]


class ShardedTraining:
    """One run. ``tell`` hears when memory ran out and what became of it."""

    def __init__(
        self,
        model: nn.Module,
        loss_fn: LossFunction | None,
        ranks: Ranks,
        precision: Precision,
        notes: PassNotes | None = None,
    ) -> None:
        if precision.scaler is not None:
            raise ConfigError("strategy='fsdp' has no loss scale for fp16 in this version; use precision='bf16-mixed'")
        if isinstance(loss_fn, TwoPass):
            raise ConfigError(
                "strategy='fsdp' and brim.TwoPass do not go together in this version: weights would have to be "
                "gathered for both passes, on all ranks alike; use strategy='ddp', which keeps a replica on every rank"
            )
        self.precision = precision
        self.ranks = ranks
        self.shards = ShardedModel(model, loss_fn, ranks, notes)
        self.recovery = CollectiveRecovery(ranks)
        self._average: ShardedAverage | None = None

    @property
    def module(self) -> nn.Module:
        return self.shards.module

    def attach(self, state: TrainingState) -> None:
        """Let a state follow the module, and be what it is built again from."""
        self.shards.listeners.append(lambda module: setattr(state, "model", module))
        self.recovery.rebuild = lambda form_group: self.shards.rebuild(state.optimizer, form_group)

    def average(self, decay: float) -> ShardedAverage:
        """The moving average of the weights, for ``ema=``."""
        self._average = ShardedAverage(self.shards, decay)
        return self._average

    def guard(
        self, optimizer: Optimizer, tell: Tell, keep_size: Callable[[int], None], settings: TrainerSettings
    ) -> ShardedGuard:
        micro_batch = settings.fixed_micro_batch
        eager = EagerStep(self.shards.compute, optimizer, self.precision, micro_batch, settings.clip_norm)
        eager.notes = self.shards.notes or eager.notes
        guard = ShardedGuard(ShardedStep(eager, self.ranks), self.shards, self.recovery, tell, keep_size, settings)
        self.recovery.tell = tell
        self.shards.listeners.append(guard.take_module)
        return guard

    def evaluator(self, data: Any, **settings: Any) -> Evaluator:
        """Data that evaluates itself, or its mean loss; ``settings`` are those of :class:`MeanLoss`."""
        if isinstance(data, Evaluator):
            return OnWholeModel(data, self.shards, self.ranks)
        whole = MeanLoss(data, self.shards.compute, self.precision, ranks=self.ranks, **settings)
        whole.loss_fn = self.shards.loss_fn
        return ShardedLoss(whole, self.shards, self.recovery)

    def end(self, device: torch.device) -> None:
        """The user's own model has the weights, on the device if they fit there."""
        self.shards.give_back()
        if self._average is not None:
            self._average.let_go()
        self.shards.let_go()
        try:
            self.shards.bare.to(device)
        except torch.OutOfMemoryError:
            self.shards.bare.to("cpu")
