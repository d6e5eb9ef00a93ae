"""The blocks of a model: the items of its outermost lists of equal modules, such as a transformer's layers.

The forecast and the engine both ask here, so that a plan forecasts the checkpointing that is applied.
"""

import difflib
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from torch import nn

from brim.errors import ConfigError

Chosen = Callable[[list[nn.Module]], list[nn.Module]]
BlockChoice = bool | int | float | str | Sequence[str] | None
"""All blocks, none, so many, such a share of them, or modules by name; None and "auto" where memory asks for it."""
AUTO = "auto"


class Enclosing(nn.Module):
    """What a forecast puts around a user's model, by whose own names its modules are known."""

    model: nn.Module


def chosen_blocks(model: nn.Module, choice: BlockChoice) -> dict[str, nn.Module]:
    """The blocks that a choice means, by name and in the model's order; none where it is left to memory.

    A number means the first ones. What later blocks hold is free again when those are recomputed in the backward pass,
    so of equal blocks the first take the least memory.

    Raises:
        ConfigError: where the model has not so many blocks, or none of a name.

    >>> layer = lambda: nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    >>> list(chosen_blocks(nn.Sequential(*(layer() for _ in range(3))), 2))
    ['0', '1']
    """
    check_block_choice(choice)
    model = model.model if isinstance(model, Enclosing) else model
    if choice is None or choice is False or choice == AUTO:
        return {}
    if not isinstance(choice, bool | int | float):
        return _named(model, choice)
    found = set(checkpointed_blocks(model))
    blocks = {name: module for name, module in model.named_modules() if module in found}
    if choice is True:
        return blocks
    if not blocks:
        raise ConfigError(
            f"checkpointing={choice} chooses from lists of equal blocks, and {type(model).__name__} has none; name the "
            "modules to recompute (checkpointing=['encoder'])"
        )
    count = choice if isinstance(choice, int) else math.ceil(choice * len(blocks))
    if count > len(blocks):
        raise ConfigError(f"checkpointing={choice} is more than the {len(blocks)} blocks that the model has")
    return dict(list(blocks.items())[:count])


def check_block_choice(choice: Any) -> None:
    """Refuse what cannot be a choice of blocks, whatever the model is."""
    if choice is None or isinstance(choice, bool) or (isinstance(choice, str) and choice == AUTO):
        return
    if isinstance(choice, int | float) and (choice > 0 if isinstance(choice, int) else 0 < choice <= 1):
        return
    if isinstance(choice, list | tuple) and choice and all(isinstance(name, str) for name in choice):
        return
    raise ConfigError(
        f"checkpointing={choice!r} is not known; use True, False, 'auto', a number of blocks (4), a share of them "
        "(0.5), or names of modules (['encoder.layer.0'])"
    )


def _named(model: nn.Module, names: Sequence[str]) -> dict[str, nn.Module]:
    known = {name: module for name, module in model.named_modules() if name}
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.0)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ConfigError(f"checkpointing names {name!r}, which {type(model).__name__} does not have{hint}")
    chosen = {name: module for name, module in known.items() if name in set(names)}
    for name in chosen:
        outer = next((other for other in chosen if name.startswith(f"{other}.")), None)
        if outer is not None:
            raise ConfigError(f"checkpointing names {name!r}, which lies within {outer!r}; leave one of them out")
    return chosen


def checkpointed_blocks(model: nn.Module) -> list[nn.Module]:
    """What is worth recomputing in the backward pass: items that occur more than once and hold other modules.

    >>> layer = lambda: nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    >>> len(checkpointed_blocks(nn.Sequential(nn.Linear(2, 4), *(layer() for _ in range(3)))))
    3
    """

    def worth_it(items: list[nn.Module]) -> list[nn.Module]:
        kinds = [type(item) for item in items]
        return [item for item in items if kinds.count(type(item)) > 1 and len(list(item.children())) > 0]

    return _outermost([model], worth_it)


def sharded_blocks(model: nn.Module) -> list[nn.Module]:
    """What FSDP gathers when it computes, and then lets go: the items with parameters of a list where all are alike.

    >>> sharded_blocks(nn.Sequential(nn.Embedding(9, 4), nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])))
    [Linear(in_features=4, out_features=4, bias=True), Linear(in_features=4, out_features=4, bias=True)]
    """
    shared = _owners_of_shared(model)

    def of_one_kind(items: list[nn.Module]) -> list[nn.Module]:
        trained = [item for item in items if next(item.parameters(), None) is not None]
        is_one_kind = len(trained) > 1 and len({type(item) for item in trained}) == 1
        return trained if is_one_kind and not any(item in shared for item in trained) else []

    return _outermost(model.children(), of_one_kind)


def _outermost(modules: Iterable[nn.Module], chosen: Chosen) -> list[nn.Module]:
    """The items chosen from lists of modules, those inside of chosen ones left out."""
    found: dict[nn.Module, None] = {}  # a block that stands in several places counts once

    def look_into(module: nn.Module) -> None:
        items = chosen(list(module)) if isinstance(module, nn.ModuleList | nn.Sequential) else []
        found.update(dict.fromkeys(items))
        for child in () if items else module.children():
            look_into(child)

    for module in modules:
        look_into(module)
    return list(found)


def _owners_of_shared(model: nn.Module) -> set[nn.Module]:
    """Modules with a parameter that another one has as well: both must be gathered together, with the root."""
    owners: dict[int, list[nn.Module]] = {}
    for module in model.modules():
        for parameter in module._parameters.values():
            if parameter is not None:
                owners.setdefault(id(parameter), []).append(module)
    tied = {module for modules in owners.values() if len(modules) > 1 for module in modules}
    return {module for module in model.modules() if any(inner in tied for inner in module.modules())}
