"""How several GPUs train one model: copies in one process, a replica on every rank, or shards of it."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

from brim.engine.distributed.ranks import Ranks
from brim.engine.oom.memory_watch import usable_memory
from brim.errors import ConfigError
from brim.memory.sizes import show_bytes

SINGLE, DP, DDP, FSDP = "single", "dp", "ddp", "fsdp"
STATES = {"sgd": 1, "rmsprop": 1, "adagrad": 1}  # numbers that an optimizer keeps for each of a weight; else 2


def choose_strategy(wished: str, model: nn.Module, ranks: Ranks, sliceable: bool | None) -> str:
    """What a wish comes to with the ranks that were started; ``auto`` is decided here but for :func:`must_shard`."""
    if ranks.is_launched and wished in (DDP, FSDP):
        ranks.is_alone = False  # one of one, asked for by name
    if ranks.is_alone:
        if wished == FSDP:
            raise ConfigError("strategy='fsdp' spreads a model over ranks, and none were started; use torchrun")
        return SINGLE if wished == DDP else wished
    if wished == SINGLE:
        raise ConfigError(f"strategy='single', and {ranks.world} ranks were started; use 'auto' or 'ddp'")
    if wished == DP:
        raise ConfigError(f"strategy='dp' is for one process, and {ranks.world} ranks were started; use 'auto'")
    if isinstance(model, DistributedDataParallel | DataParallel):
        raise ConfigError(f"the model is wrapped in {type(model).__name__}; hand over model.module, brim does the rest")
    if sliceable is False:
        raise ConfigError(
            f"sliceable=False, and {ranks.world} ranks would each compute a share of the batch; use one rank"
        )
    return FSDP if wished == FSDP else DDP


def must_shard(wished: str, model: nn.Module, optimizer: Any, device: torch.device) -> str:
    """Why a replica on every rank cannot be, as far as weights, gradients and optimizer alone tell; or nothing."""
    if wished != "auto" or device.type != "cuda":
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
