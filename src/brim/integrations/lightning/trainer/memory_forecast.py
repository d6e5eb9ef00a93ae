"""How much memory a LightningModule will take on a card, without running it there: in the place of BatchSizeFinder."""

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor

from brim.data import batch_length
from brim.engine.components.optimizer import optimizer_maker
from brim.engine.step.resized import batches_like
from brim.errors import ConfigError
from brim.integrations.lightning.module_kind import check_module, takes_batch_idx
from brim.integrations.lightning.modules.loop_state import LoopState
from brim.integrations.lightning.modules.module_log import is_metric
from brim.integrations.lightning.modules.optimizers import optimization_of
from brim.integrations.lightning.modules.trainer_view import TrainerView, ViewedRun
from brim.integrations.lightning.modules.training_loss import loss_in
from brim.memory import Forecast
from brim.memory import forecast as forecast_of
from brim.memory import largest_batch as largest_of
from brim.memory.planning.estimates import ModelWithLoss

UNKNOWN_BATCHES = 1000


def forecast(
    module: Any, batch: Any, *, batch_size: int | None = None, optimizer: Any = None, **settings: Any
) -> Forecast:
    """The peak memory of a training step of ``module``, on a machine that need not have a GPU.

    Args:
        module: a LightningModule; ``training_step`` runs on fake tensors, in a copy.
        batch: one, as its loader gives it.
        batch_size: samples of a step; None for those of ``batch``.
        optimizer: None for what ``configure_optimizers`` returns, or SGD without momentum where that is several.
        settings: ``card=``, ``precision=``, ``accumulation=``, ``clip_norm=`` and others of :func:`brim.forecast`.

    Returns:
        The forecast, with ``fits``, ``parts`` and ``explain()``.

    Raises:
        ModelError: where the module fails on fake tensors, with its line.
    """
    size = batch_length(batch) if batch_size is None else batch_size
    return forecast_of(*_job(module, batch, optimizer), batch_size=size, **settings)


def largest_batch(module: Any, batch: Any, *, optimizer: Any = None, **settings: Any) -> int:
    """The largest batch size whose training steps fit, without a trial run.

    Args:
        module, batch, optimizer: as for :func:`forecast`.
        settings: ``card=``, ``memory=``, ``precision=`` and others of :func:`brim.largest_batch`.

    Raises:
        CannotFit: where not even one sample fits.
    """
    return largest_of(*_job(module, batch, optimizer), **settings)


def _job(module: Any, batch: Any, optimizer: Any) -> tuple[Any, Any, Any, Any]:
    check_module(module, "the memory forecast")
    view = view_of(module)
    made = optimizer or _optimizer_of(module, view)
    loss = ModelWithLoss(module, partial(_loss, id(module), view))
    return loss, batches_like(batch), None, optimizer_maker(made, 1e-3)


def view_of(module: Any) -> TrainerView:
    """What a copy sees as its trainer: the numbers of the one that the module has, where it has one."""
    trainer = getattr(module, "_trainer", None)
    epochs, steps = getattr(trainer, "max_epochs", None), getattr(trainer, "max_steps", None)
    loop = LoopState(module, epoch=getattr(trainer, "current_epoch", 0), step=getattr(trainer, "global_step", 0))
    settings = {"epochs": epochs or 1, "max_steps": steps if steps and steps > 0 else None}
    datamodule = getattr(trainer, "datamodule", None)
    return TrainerView(ViewedRun(loop, settings, lambda sentence: None, datamodule, range(_batches_of(trainer))))


def _batches_of(trainer: Any) -> int:
    """Of an epoch, which schedules are made for. Before there are loaders any will do: no memory depends on it."""
    known = getattr(trainer, "num_training_batches", math.inf)
    return UNKNOWN_BATCHES if known == math.inf else int(known)


def _optimizer_of(module: Any, view: TrainerView) -> Any:
    """The one that it trains with, or would make."""
    trainer = getattr(module, "_trainer", None)
    if trainer is not None and not isinstance(trainer, TrainerView):
        made = list(trainer.optimizers)
        return made[0] if len(made) == 1 else torch.optim.SGD
    before, module.trainer = trainer, view
    try:
        return optimization_of(module.configure_optimizers()).optimizer
    except ConfigError:  # several, whose state is not known to be of one kind
        return torch.optim.SGD
    finally:
        module.trainer = before


def _loss(original: int, view: TrainerView, model: Any, batch: Any) -> Tensor:
    """The loss of a copy, which logs nothing and counts nothing."""
    if id(model) == original:
        raise ConfigError("a forecast runs on a copy of the module, and this is the module itself")
    model.trainer = view
    vars(model)["log"] = _nothing
    for part in model.modules():
        if is_metric(part):
            vars(part).update(forward=_zero, update=_nothing, compute=_zero)
    numbered = [0] if takes_batch_idx(model.training_step) else []
    loss: Tensor = loss_in(model.training_step(batch, *numbered), type(model).__name__)
    return loss


def _nothing(*arguments: Any, **named: Any) -> None:
    """In the place of what would leave a trace."""


def _zero(*arguments: Any, **named: Any) -> Tensor:
    first = next((one for one in arguments if isinstance(one, Tensor)), None)
    return torch.zeros((), device=None if first is None else first.device)
