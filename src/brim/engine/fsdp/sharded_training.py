"""What a trainer needs to train a sharded model: the shards, and the parts of a run that know of them."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from brim.engine.checkpoints.checkpoint import TrainingState
from brim.engine.components.loss import LossFunction
from brim.engine.components.precision import Precision
from brim.engine.components.settings import TrainerSettings
from brim.engine.distributed.collective_recovery import Reunion
from brim.engine.distributed.ranks import Ranks
from brim.engine.evaluation.evaluation import Evaluator
from brim.engine.fsdp.growth import Growth
from brim.engine.fsdp.sharded_evaluation import OnWholeModel, ShardedLoss
from brim.engine.fsdp.sharded_step import ShardedGuard, ShardedStep
from brim.engine.fsdp.shards import Shards
from brim.errors import ConfigError

Tell = Callable[..., None]


class ShardedTraining:
    """One run. ``tell`` hears when memory ran out and what became of it."""

    def __init__(self, model: nn.Module, loss_fn: LossFunction | None, ranks: Ranks, precision: Precision) -> None:
        if precision.scaler is not None:
            raise ConfigError("strategy='fsdp' has no loss scale for fp16 in this version; use precision='bf16-mixed'")
        self.precision = precision
        self.ranks = ranks
        self.shards = Shards(model, loss_fn, ranks)
        self.reunion = Reunion(ranks)

    @property
    def module(self) -> nn.Module:
        return self.shards.module

    def attach(self, state: TrainingState) -> None:
        """Let a state follow the module, and be what it is built again from."""
        self.shards.listeners.append(lambda module: setattr(state, "model", module))
        self.reunion.build_again = lambda meet_anew: self.shards.build_again(state.optimizer, meet_anew)

    def guard(
        self,
        optimizer: Optimizer,
        tell: Tell,
        keep_size: Callable[[int], None],
        settings: TrainerSettings,
    ) -> ShardedGuard:
        micro_batch = settings.fixed_micro_batch
        step = ShardedStep(self.shards.compute, optimizer, self.precision, micro_batch, settings.clip_norm)
        step.ranks, step.shards = self.ranks, self.shards
        guard = ShardedGuard(step, self.module, tell, settings.sliceable, settings.checkpointing)
        guard.reunion, guard.keep_size, guard.checkpointing = self.reunion, keep_size, settings.checkpointing
        guard.growth = Growth(self.ranks, guard.watch, most=micro_batch)
        self.reunion.told = tell
        self.reunion.steps_made = lambda: guard.made
        self.shards.listeners.append(guard.take_module)
        return guard

    def evaluator(self, data: Any, sliceable: bool | None) -> Evaluator:
        if isinstance(data, Evaluator):
            return OnWholeModel(data, self.shards, self.ranks)
        made = ShardedLoss(data, self.shards.compute, self.precision, sliceable, self.ranks)
        made.reunion, made.shards = self.reunion, self.shards
        return made

    def end(self, device: torch.device) -> None:
        """The user's own model has the weights, on the device if they fit there."""
        self.shards.give_back()
        self.shards.let_go()
        try:
            self.shards.bare.to(device)
        except torch.OutOfMemoryError:
            self.shards.bare.to("cpu")
