"""What a LightningModule is, by which of its names, and what of it its user wrote."""

import inspect
from collections.abc import Callable
from importlib import import_module
from types import FunctionType
from typing import Any

from torch import nn

from brim.errors import ConfigError, a_type

BASES = ("LightningModule", "LightningDataModule")


def base_of(thing: Any) -> type | None:
    """The class of Lightning's that an object derives from: ``lightning`` and ``pytorch_lightning`` have one each."""
    return next((kind for kind in type(thing).__mro__ if kind.__name__ in BASES), None)


def check_module(module: Any, what: str = "train") -> nn.Module:
    """Refuse what is no LightningModule."""
    if isinstance(module, type) and any(kind.__name__ in BASES for kind in module.__mro__):
        raise ConfigError(f"{what} takes an object, and {module.__name__} is a class; pass {module.__name__}(...)")
    base = base_of(module)
    if not isinstance(module, nn.Module) or base is None:
        raise ConfigError(
            f"{what} takes a LightningModule, and this is {a_type(module)}; for other models use brim.Trainer"
        )
    return module


def is_overridden(thing: Any, name: str) -> bool:
    """Whether a method is the user's own, not Lightning's.

    >>> is_overridden(object(), "training_step")
    False
    """
    own, base = getattr(thing, name, None), base_of(thing)
    if own is None or base is None:
        return False
    return getattr(own, "__func__", own) is not getattr(base, name, None)


def library_part(module: nn.Module, path: str) -> Any:
    """A module of the library that this LightningModule is of: ``lightning.pytorch`` or ``pytorch_lightning``."""
    base = base_of(module)
    assert base is not None
    root = base.__module__.split(".core.")[0]
    return import_module(f"{root}.{path}")


def takes_batch_idx(step: Callable[..., Any]) -> bool:
    """Whether a bound step takes the number of the batch beside the batch, as Lightning tells it.

    >>> takes_batch_idx(lambda batch: 0), takes_batch_idx(lambda batch, number: 0)
    (False, True)
    """
    parameters = inspect.signature(step).parameters
    if "batch_idx" in parameters or any(one.kind is inspect.Parameter.VAR_POSITIONAL for one in parameters.values()):
        return True
    return len([one for one in parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]) >= 2


def plain_function(method: Any) -> FunctionType | None:
    """The function behind a method, through decorators that say what they wrap."""
    function = inspect.unwrap(getattr(method, "__func__", method))
    return function if isinstance(function, FunctionType) else None
