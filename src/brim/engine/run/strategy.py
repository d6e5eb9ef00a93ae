"""How several GPUs train one model: copies in one process, a replica on every rank, or shards of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

from brim.engine.components.settings import TrainerSettings
from brim.engine.data_parallel.data_parallel import devices_for
from brim.engine.distributed.ranks import Ranks
from brim.engine.oom.memory_watch import usable_memory
from brim.errors import ConfigError
from brim.hardware import choose_device, inventory
from brim.hardware.tiers import most_gpus
from brim.record import Journal
from brim.sizes import show_bytes

SINGLE, DP, DDP, FSDP = "single", "dp", "ddp", "fsdp"
STATES = {"sgd": 1, "rmsprop": 1, "adagrad": 1}  # numbers that an optimizer keeps for each of a weight; else 2


@dataclass(frozen=True)
class Strategy:
    """``devices`` are those that this process computes on, and ``device`` is the first of them."""

    name: str
    device: torch.device
    devices: list[torch.device]


def choose_strategy(
    settings: TrainerSettings,
    model: nn.Module,
    ranks: Ranks,
    journal: Journal,
    why_one: Callable[[list[torch.device]], str] = lambda devices: "",
) -> Strategy:
    """Decide by what was asked for, the ranks that were started and the GPUs here; say so, and join the other ranks.

    ``why_one`` says why one of several GPUs is better, where it is; it is asked where nobody named a strategy.
    """
    if ranks.identity.is_launched and settings.strategy in (DDP, FSDP):
        ranks.is_alone = False  # one of one, asked for by name
    asked = _asked_of(ranks, settings, model)
    choice = choose_device(
        settings.device, inventory(), settings.use_multi_gpu, ranks.identity.local_rank, ranks.identity.local_world,
        spreads=asked in ("auto", DP), most=most_gpus(settings.tier),
    )  # fmt: skip
    device = choice.device
    if settings.capture == "require" and device.type != "cuda":
        raise ConfigError(f"capture='require' needs a CUDA GPU, and this run is on {device}; use 'auto'")
    (journal.warn if choice.is_fallback and ranks.is_first else journal.say)(choice.sentence, "device")
    ranks.join(device)
    devices, why = devices_for(model, choice.devices or (device,), settings)
    if ranks.is_alone:
        if settings.strategy == DDP:
            journal.warn("strategy='ddp', and no ranks were started: one process trains alone; use torchrun", "device")
        if why:
            journal.warn(why, "device")
        elif len(devices) > 1 and asked == "auto" and (reason := why_one(devices)):
            journal.say(reason, "device")
            devices = devices[:1]
        return Strategy(DP if len(devices) > 1 else SINGLE, device, devices)
    # The free memory of GPUs differs: where a replica does not fit on one of them, all ranks shard.
    reasons = ranks.all_gather_object(must_shard(settings.strategy, model, settings.optimizer, device))
    reason = next(filter(None, reasons), "")
    name = FSDP if reason else asked
    told = "the model is sharded over them (FSDP2), as asked" if name == FSDP else "each with a replica"
    spread = f"{ranks.world} ranks, " if ranks.world > 1 else "1 rank, "
    journal.say(spread + (reason or told), "strategy", strategy=name)
    return Strategy(name, device, devices)


def _asked_of(ranks: Ranks, settings: TrainerSettings, model: nn.Module) -> str:
    """What was asked for with the ranks that were started; ``auto`` for ranks is DDP unless :func:`must_shard`."""
    asked = settings.strategy
    if ranks.is_alone:
        if asked == FSDP:
            raise ConfigError("strategy='fsdp' spreads a model over ranks, and none were started; use torchrun")
        return SINGLE if asked == DDP else asked
    if asked == SINGLE:
        raise ConfigError(f"strategy='single', and {ranks.world} ranks were started; use 'auto' or 'ddp'")
    if asked == DP:
        raise ConfigError(f"strategy='dp' is for one process, and {ranks.world} ranks were started; use 'auto'")
    if isinstance(model, DistributedDataParallel | DataParallel):
        raise ConfigError(f"the model is wrapped in {type(model).__name__}; hand over model.module, brim does the rest")
    if settings.sliceable is False:
        raise ConfigError(
            f"sliceable=False, and {ranks.world} ranks would each compute a share of the batch; use one rank"
        )
    return FSDP if asked == FSDP else DDP


def must_shard(asked: str, model: nn.Module, optimizer: Any, device: torch.device) -> str:
    """Why a replica on every rank cannot be, as far as weights, gradients and optimizer alone tell; or nothing."""
    if asked != "auto" or device.type != "cuda":
        return ""
    needed, room = standing_bytes(model, optimizer), usable_memory(device)
    if needed <= room:
        return ""
    return (
        f"a replica takes {show_bytes(needed)} for weights, gradients and optimizer, and a GPU has {show_bytes(room)}: "
        "the model is sharded over the ranks with FSDP2"
    )


def standing_bytes(model: nn.Module, optimizer: Any) -> int:
    """What stands between steps on every GPU that trains a whole model.

    >>> standing_bytes(nn.Linear(9, 1), "AdamW")  # 10 weights, as many gradients, two numbers of the optimizer for each
    160
    """
    named = optimizer.get("name", "") if isinstance(optimizer, Mapping) else optimizer
    states = STATES.get(str(named).lower(), 2)
    weights = {id(p): p for p in model.parameters()}.values()
    own = sum(p.numel() * p.element_size() for p in weights)
    trained = sum(p.numel() * p.element_size() for p in weights if p.requires_grad)
    return own + (1 + states) * trained
