"""The modes in which a model's modules are trained: as ``model.train()`` has them, but for what its user froze.

``model.train()`` alone would thaw a BatchNorm that was put into eval mode, and move its statistics. A model that is in
eval mode as a whole was loaded or evaluated last, which says nothing about its parts.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from brim.errors import some_of

MOST_NAMES = 3


@contextmanager
def training_modes(model: nn.Module, tell: Callable[[str], Any] = lambda sentence: None) -> Iterator[None]:
    """The modes of training; afterwards, however it ends, every module has the one that it came in."""
    before = [(module, module.training) for module in model.modules()]
    try:
        kept = set_training_modes(model)
        if kept:
            tell(f"{_named(kept)} there; to train all of the model, call model.train() before fit")
        yield
    finally:
        for module, mode in before:
            module.training = mode


def set_training_modes(model: nn.Module) -> list[str]:
    """Put the model into the modes of training; returns the outermost modules that stay in eval mode.

    >>> model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2).eval())
    >>> set_training_modes(model), model[1].training
    (['1'], False)
    """
    before = {module: module.training for module in model.modules()}
    loaded = _loaded(model) | _pretrained(model)
    model.train()  # which may be the model's own, and keep parts of it in eval mode
    kept = [
        (name, module)
        for name, module in model.named_modules()
        if module.training and not before.get(module, True) and module not in loaded
    ]
    for _, module in kept:
        module.training = False
    return _outermost([name for name, _ in kept])


def _loaded(model: nn.Module) -> set[nn.Module]:
    """All modules of a model that is in eval mode as a whole, or as far as its own ``eval`` goes."""
    if model.training:
        return set()
    before = {module: module.training for module in model.modules()}
    if any(before.values()):
        model.eval()
        is_whole = all(module.training == mode for module, mode in before.items())
        for module, mode in before.items():
            module.training = mode
        return set(before) if is_whole else set()
    return set(before)


def _pretrained(model: nn.Module) -> set[nn.Module]:
    """Modules of Hugging Face models inside that are as ``from_pretrained`` leaves them, and have something to train.

    It puts what it loads into eval mode, which nobody who fine-tunes it has asked for. One without anything to train
    stays in eval mode: it is a fixed encoder.
    """
    found = [
        part
        for part in model.modules()
        if not part.training
        and any(kind.__name__ == "PreTrainedModel" for kind in type(part).__mro__)
        and any(parameter.requires_grad for parameter in part.parameters())
    ]
    return {module for part in found for module in part.modules()}


def _outermost(names: list[str]) -> list[str]:
    kept = set(names)
    return [name for name in names if not any(f"{name}.".startswith(f"{other}.") for other in kept - {name} if other)]


def _named(names: list[str]) -> str:
    told = some_of((name or "the model itself" for name in names), MOST_NAMES)
    return f"{told} is in eval mode and stays" if len(names) == 1 else f"{told} are in eval mode and stay"
