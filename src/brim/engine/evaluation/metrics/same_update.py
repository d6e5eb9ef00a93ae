"""Whether two metrics of torchmetrics would collect the same, so that one of them can do it for both."""

from collections.abc import Iterator
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any

import torch
from torch import Tensor

LIBRARY = "torchmetrics."
DYNAMIC = frozenset(("getattr", "setattr", "vars", "super", "__dict__", "__getattr__", "eval", "exec"))
# What torchmetrics itself does around every update asks for these.
AROUND = frozenset(("compute_on_cpu", "_enable_grad", "update"))
PLAIN = (type(None), bool, int, float, str, torch.device, torch.dtype)


def updates_match(one: Any, other: Any) -> bool:
    """Whether their updates are the same code, and everything by a name that this code reads is equal in both.

    Accuracy and F1 of the same classes count the same hits and differ in what they compute of them. torchmetrics' own
    groups go by the values after the first update, which two thresholds may have in common by chance.
    """
    if not (_is_of_library(one) and _is_of_library(other)):
        return False
    kind: Any = type(one)
    other_kind: Any = type(other)
    names = _names_read(kind)
    if names is None or names != _names_read(other_kind) or one._defaults.keys() != other._defaults.keys():
        return False
    return all(_are_equal(*pair) for pair in _values_read(one, other, names | one._defaults.keys()))


def _is_of_library(metric: Any) -> bool:
    """Whether it is one of torchmetrics' own, as it was made: no wrapper of others, no update of somebody else's."""
    wrapped = getattr(metric.__dict__.get("update"), "__wrapped__", None)
    is_own = all(cls.__module__.startswith((LIBRARY, "torch.", "abc", "builtins")) for cls in type(metric).__mro__)
    return is_own and not metric._modules and getattr(wrapped, "__func__", None) is type(metric).update


@lru_cache(maxsize=256)
def _names_read(kind: Any) -> frozenset[str] | None:
    """The names that its update may ask of the metric, also in its own methods; None where they cannot be told."""
    seen: set[str] = set()
    waiting = list(AROUND)
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        method = getattr(kind, name, None)
        if isinstance(method, property):
            return None
        if isinstance(method, FunctionType):
            waiting += _names_of(method.__code__)
    return None if seen & DYNAMIC else frozenset(seen)


def _names_of(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names_of(inner)


def _values_read(one: Any, other: Any, names: frozenset[str]) -> Iterator[tuple[Any, Any]]:
    """What both have by each name: their own, except for the update, or their class's."""
    for name in names:
        for held in (vars, lambda metric: metric._buffers, lambda metric: metric._parameters):
            if name != "update":
                yield held(one).get(name), held(other).get(name)
        yield getattr(type(one), name, None), getattr(type(other), name, None)


def _are_equal(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, Tensor):
        alike = one.dtype == other.dtype and one.device == other.device and one.shape == other.shape
        return alike and torch.equal(one, other)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(_are_equal(*pair) for pair in zip(one, other, strict=True))
    return isinstance(one, PLAIN) and one == other
