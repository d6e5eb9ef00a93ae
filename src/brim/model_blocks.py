"""The blocks of a model: the items of its outermost lists of equal modules, such as a transformer's layers.

The forecast and the engine both ask here, so that a plan forecasts the checkpointing that is applied.
"""

from collections.abc import Callable, Iterable

from torch import nn

Chosen = Callable[[list[nn.Module]], list[nn.Module]]


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

    def alike(items: list[nn.Module]) -> list[nn.Module]:
        trained = [item for item in items if next(item.parameters(), None) is not None]
        is_one_kind = len(trained) > 1 and len({type(item) for item in trained}) == 1
        return trained if is_one_kind and not any(item in shared for item in trained) else []

    return _outermost(model.children(), alike)


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
