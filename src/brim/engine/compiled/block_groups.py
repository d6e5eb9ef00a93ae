"""Which blocks of a model one compiled function serves, and the modules that call them one after the other."""

from collections.abc import Iterable
from typing import Any

from torch import nn

from brim.engine.oom.activation_checkpointing import BEFORE, is_checkpointed
from brim.model_blocks import checkpointed_blocks

CONTAINERS = (nn.ModuleList, nn.ModuleDict)  # they hold modules and never call them
LEAST_SHARED = 2.0  # blocks to a function, on average: with fewer, compiling by blocks spares nothing


def block_groups(model: nn.Module) -> list[list[nn.Module]]:
    """The model's blocks by what they compute: those of a group differ in the values of their weights alone.

    Empty where there are no such blocks, or hardly any are alike.

    >>> layer = lambda width: nn.Sequential(nn.Linear(width, width), nn.ReLU())
    >>> [len(group) for group in block_groups(nn.Sequential(layer(2), layer(2), layer(3), layer(3)))]
    [2, 2]
    """
    blocks = checkpointed_blocks(model)
    groups: dict[Any, list[nn.Module]] = {}
    for block in blocks:
        groups.setdefault(_signature(block), []).append(block)
    is_worth_it = bool(blocks) and len(blocks) >= LEAST_SHARED * len(groups)
    return list(groups.values()) if is_worth_it and not any(map(has_own_forward, blocks)) else []


def callers_of(model: nn.Module, blocks: Iterable[nn.Module]) -> list[nn.Module]:
    """The modules in whose ``forward`` the blocks are called: a Sequential itself, else what the list belongs to."""
    wanted = set(blocks)
    found: dict[nn.Module, None] = {}

    def look_into(module: nn.Module, caller: nn.Module) -> None:
        caller = caller if isinstance(module, CONTAINERS) else module
        for child in module.children():
            if child in wanted:
                found[caller] = None
            else:
                look_into(child, caller)

    look_into(model, model)
    return list(found)


def _signature(block: nn.Module) -> tuple[Any, ...]:
    """What the code that is compiled for a block depends on, beside the values of its tensors."""
    return tuple(
        (name, type(module), module.training, module.extra_repr(), *_tensors(module))
        for name, module in block.named_modules()
    )


def _tensors(module: nn.Module) -> list[tuple[Any, ...]]:
    held = {**module._parameters, **module._buffers}
    return [(name, t.shape, t.dtype, t.requires_grad) for name, t in held.items() if t is not None]


def has_own_forward(block: nn.Module) -> bool:
    """Whether somebody has put another ``forward`` into this very block: who knows what it belongs to."""
    return (vars(block).get(BEFORE) is not None) if is_checkpointed(block) else "forward" in vars(block)
