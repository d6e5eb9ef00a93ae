"""The modules that a loss carries with it."""

import functools
from collections.abc import Iterator
from types import FunctionType, MethodType, ModuleType
from typing import Any

from torch import Tensor, nn

from brim.engine.sandbox.users_code import closure_of, names_in

DEPTH = 3  # of objects within objects
MOST_ITEMS = 64  # of a container that are looked at
LIBRARIES = ("torch", "numpy", "transformers", "brim", "builtins")
PLAIN = (Tensor, type, ModuleType, str, bytes, int, float, complex, type(None))


def modules_of(loss_fn: Any, *models: nn.Module) -> dict[str, nn.Module]:
    """The modules that a loss carries with it, by where it does: itself, in closures, arguments, attributes, globals.

    Parts of ``models`` are not among them.

    >>> list(modules_of(functools.partial(print, criterion=nn.BCELoss()), nn.Linear(2, 1)))
    ['loss_fn.criterion']
    """
    found: dict[str, nn.Module] = {}
    seen = {id(module) for model in models for module in model.modules()}
    _look("loss_fn", loss_fn, DEPTH, found, seen)
    return found


def _look(name: str, value: Any, depth: int, found: dict[str, nn.Module], seen: set[int]) -> None:
    if id(value) in seen or isinstance(value, PLAIN):
        return
    seen.add(id(value))
    if isinstance(value, nn.Module):
        found[name] = value
        seen.update(id(module) for module in value.modules())
        return
    if depth < 0:
        return
    for key, held in _held(value):
        _look(f"{name}.{key}", held, depth - 1, found, seen)


def _held(value: Any) -> Iterator[tuple[str, Any]]:
    """What an object holds: items, arguments, what a function closes over and the globals that it names, attributes."""
    if isinstance(value, dict):
        yield from ((str(key), item) for key, item in list(value.items())[:MOST_ITEMS])
    elif isinstance(value, list | tuple | set | frozenset):
        yield from ((str(number), item) for number, item in enumerate(list(value)[:MOST_ITEMS]))
    elif isinstance(value, functools.partial):
        yield "func", value.func
        yield from ((str(number), item) for number, item in enumerate(value.args))
        yield from value.keywords.items()
    elif isinstance(value, MethodType):
        yield "self", value.__self__
        yield from _held_by_function(value.__func__)
    elif isinstance(value, FunctionType):
        yield from _held_by_function(value)
    elif not _is_library(type(value).__module__):
        yield from list(getattr(value, "__dict__", {}).items())[:MOST_ITEMS]
        yield from _held_by_function(vars(type(value)).get("__call__"))


def _held_by_function(function: Any) -> Iterator[tuple[str, Any]]:
    if not isinstance(function, FunctionType) or _is_library(function.__module__):
        return
    yield from closure_of(function)
    yield from _defaults(function)
    for name in sorted(set(names_in(function.__code__))):
        if name in function.__globals__:
            yield name, function.__globals__[name]


def _defaults(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """The default values of a function's arguments."""
    yield from ((f"default {number}", value) for number, value in enumerate(function.__defaults__ or ()))
    yield from (function.__kwdefaults__ or {}).items()


def _is_library(module: str | None) -> bool:
    return (module or "").split(".")[0] in LIBRARIES
