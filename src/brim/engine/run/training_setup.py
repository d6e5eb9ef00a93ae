"""What a trainer trains with, settled before its first run: model and loss in their form, where they are computed."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from brim.engine.calling.loss_trial import settle_loss_form
from brim.engine.components.loss import LossFunction, LossOf, loss_of
from brim.engine.components.precision import Precision
from brim.engine.components.settings import TrainerSettings
from brim.engine.components.two_pass import criterion_in
from brim.engine.control.tier import apply_tier
from brim.engine.data_parallel.data_parallel import DataParallelLoss
from brim.engine.data_parallel.gain import why_one_is_faster
from brim.engine.distributed.ranks import Ranks
from brim.engine.numbers.pass_notes import PassNotes
from brim.engine.run.strategy import DP, FSDP, choose_strategy
from brim.record import Journal


@dataclass(frozen=True)
class TrainingSetup:
    """The same for every run of a trainer. ``loss_fn`` has the form that brim calls, ``compute`` its loss."""

    model: nn.Module
    loss_fn: LossFunction | None
    compute: LossOf
    notes: PassNotes  # what a pass of the loss says beside the loss
    train_data: Any
    device: torch.device
    devices: list[torch.device]
    precision: Precision
    ranks: Ranks
    strategy: str
    settings: TrainerSettings
    journal: Journal


def training_setup(
    model: nn.Module, loss_fn: LossFunction | None, train_data: Any, settings: TrainerSettings
) -> TrainingSetup:
    """Choose strategy and devices, let the model lie there, and find out how its loss is called."""
    ranks = Ranks.from_environment()
    journal = Journal(speaker="" if ranks.is_first else f"rank {ranks.rank}")
    why_one = partial(why_one_is_faster, model, loss_fn, train_data, settings)
    chosen = choose_strategy(settings, model, ranks, journal, why_one)
    precision = Precision(str(settings.precision), chosen.device)
    # Shards, and weights in a shorter type, are moved by fit.
    if chosen.name != FSDP and (precision.weights_dtype is None or chosen.name == DP):
        model.to(chosen.device)
    train_data = apply_tier(settings.tier, model, train_data)
    loss_fn = settle_loss_form(loss_fn, model, train_data)
    if (criterion := criterion_in(loss_fn)) is not None:
        criterion.to(chosen.device)  # class weights, say
    notes = PassNotes()
    compute: LossOf = loss_of(model, loss_fn, notes)
    if chosen.name == DP:
        tell = partial(journal.warn, kind="device")
        compute = DataParallelLoss(model, loss_fn, chosen.devices, settings.sliceable, tell, notes=notes)
    return TrainingSetup(
        model, loss_fn, compute, notes, train_data, chosen.device, chosen.devices, precision, ranks, chosen.name,
        settings, journal,
    )  # fmt: skip
