"""Places in Python that can hold another value after a call: what is there can be taken, and put back later."""

import copy
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from brim.data.randomness.generators import set_state, state_of

LARGE = 16 << 20  # bytes of a tensor whose copy stays off its device
ITERATORS: tuple[type, ...] = (itertools.count, itertools.cycle, type(iter([])), type(iter(range(0))), type(iter(())))
_GONE = object()


class Place(Protocol):
    """Something that can hold another value after a call: a name, an attribute, the content of a container."""

    def take(self) -> Any:
        """What is there now, for :meth:`put`."""

    def is_changed(self, taken: Any) -> bool: ...

    def put(self, taken: Any) -> None: ...


@dataclass(eq=False)
class Binding:
    """A name or an attribute, which can be bound to something else; ``now`` gives what it is bound to."""

    now: Callable[[], Any]
    bind: Callable[[Any], object]

    def take(self) -> Any:
        return _frozen(self.now())

    def is_changed(self, taken: Any) -> bool:
        return self.now() is not taken

    def put(self, taken: Any) -> None:
        self.bind(_frozen(taken))


def name_in(scope: dict[str, Any], name: str) -> Binding:
    """A global, or an attribute by its place in an object's dictionary."""

    def bind(value: Any) -> None:
        if value is _GONE:
            scope.pop(name, None)
        else:
            scope[name] = value

    return Binding(lambda: scope.get(name, _GONE), bind)


def attribute_of(owner: Any, name: str, bind: Callable[[Any, str, Any], None] = setattr) -> Binding:
    """An attribute that is no entry of a dictionary: of a cell, a class, a slot."""
    now = (lambda: vars(owner).get(name)) if isinstance(owner, type) else (lambda: getattr(owner, name, None))
    return Binding(now, partial(bind, owner, name))


@dataclass(eq=False)
class NewNames:
    """The names of a namespace: those that were not there before go again."""

    scope: dict[str, Any]

    def take(self) -> set[str]:
        return set(self.scope)

    def is_changed(self, taken: set[str]) -> bool:
        return len(self.scope) != len(taken) or self.scope.keys() != taken

    def put(self, taken: set[str]) -> None:
        for name in [name for name in self.scope if name not in taken]:
            del self.scope[name]


@dataclass(eq=False)
class Items:
    """What is in a container, by identity; the container stays the same object."""

    container: Any

    def take(self) -> Any:
        if isinstance(self.container, dict):
            return [(key, _frozen(item)) for key, item in self.container.items()]
        if isinstance(self.container, set | bytearray):
            return type(self.container)(self.container)
        return [_frozen(item) for item in self.container]

    def is_changed(self, taken: Any) -> bool:
        if len(self.container) != len(taken):
            return True
        if isinstance(self.container, dict):
            items = zip(self.container.items(), taken, strict=True)
            return any(item is not held or (key is not known and key != known) for (key, item), (known, held) in items)
        if isinstance(self.container, set | bytearray):
            return bool(self.container != taken)
        return any(item is not held for item, held in zip(self.container, taken, strict=True))

    def put(self, taken: Any) -> None:
        self.container.clear()
        if isinstance(self.container, dict):
            self.container.update({key: _frozen(item) for key, item in taken})
        elif isinstance(self.container, set):
            self.container.update(taken)
        else:
            self.container.extend([_frozen(item) for item in taken] if isinstance(taken, list) else taken)


@dataclass(eq=False)
class Content:
    """The numbers in a tensor or array that is no part of a module."""

    value: "Tensor | np.ndarray[Any, Any]"

    def take(self) -> Any:
        if not isinstance(self.value, Tensor):
            return self.value.copy()
        held = self.value.detach()
        return held.to("cpu", copy=True) if self.value.nbytes > LARGE else held.clone()

    def is_changed(self, taken: Any) -> bool:
        if self.value.shape != taken.shape:
            return False  # resized: another tensor by the same name
        if isinstance(self.value, Tensor):
            return not torch.equal(self.value.detach().to(taken.device), taken)
        return bool(self.value.tobytes() != taken.tobytes())

    def put(self, taken: Any) -> None:
        if isinstance(self.value, Tensor):
            with torch.no_grad():
                self.value.detach().copy_(taken)
        else:
            self.value[...] = taken


@dataclass(eq=False)
class GeneratorState:
    """Where a random generator of the user's own stands."""

    generator: Any

    def take(self) -> Any:
        return state_of(self.generator)

    def is_changed(self, taken: Any) -> bool:
        return True  # comparing costs as much as setting

    def put(self, taken: Any) -> None:
        set_state(self.generator, taken)


def _frozen(value: Any) -> Any:
    """The value; of an iterator, one that stands at the same place."""
    return copy.copy(value) if isinstance(value, ITERATORS) else value


def has_content(value: "Tensor | np.ndarray[Any, Any]") -> bool:
    """Whether its numbers can be kept and put back."""
    if isinstance(value, np.ndarray):
        return bool(value.flags.writeable) and not value.dtype.hasobject and value.nbytes > 0
    is_plain = type(value) in (Tensor, nn.Parameter) and value.layout is torch.strided
    return is_plain and not value.is_meta and not value.is_inference() and value.numel() > 0
