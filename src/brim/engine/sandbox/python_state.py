"""What users' code keeps in Python, so that calls of it which do not count leave no trace.

A model, a loss function or a data set may count its calls, append to a list, set an attribute, rebind a global or draw
from a generator of its own. :class:`PythonState` remembers all that can be reached from it and puts it back in place:
whoever else holds the same list or object sees it as it was. Parameters and buffers of modules are not part of it;
their contents are :class:`brim.engine.oom.snapshot.Snapshot`'s.
"""

import copy
import io
import itertools
import random
import sys
import sysconfig
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FunctionType,
    GeneratorType,
    MappingProxyType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data.dataloader import _BaseDataLoaderIter

from brim.data.randomness.generators import GENERATORS, set_state, state_of

LIBRARIES = ("torch", "numpy", "transformers", "peft", "brim", "builtins", "lightning", "accelerate", "torchvision")
# Nothing of these is anybody's training state, and putting them back would break them.
OPAQUE = ("threading", "_thread", "logging", "io", "_io", "socket", "multiprocessing", "concurrent", "asyncio", "rich")
MOST_OBJECTS = 100_000
MOST_ITEMS = 10_000  # of a container that are looked into; the container itself is copied whole
MOST_BYTES = 1 << 30  # of tensors and arrays whose content is kept
LARGE = 16 << 20  # bytes of one whose copy stays off its device
PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, type(Ellipsis))
# What moves on when it is used, and cannot be copied where it stands.
ONE_WAY: tuple[type, ...] = (GeneratorType, map, filter, zip, enumerate, reversed, _BaseDataLoaderIter)
STREAMS = (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)
ITERATORS: tuple[type, ...] = (itertools.count, itertools.cycle, type(iter([])), type(iter(range(0))), type(iter(())))


class CannotPutBack(Exception):
    """Users' code holds something that a call would change for good: an iterator, an open file, too much."""


class Place(Protocol):
    """Something that can hold another value after a call: a name, an attribute, the content of a container."""

    def take(self) -> Any:
        """What is there now, for :meth:`put`."""

    def is_changed(self, taken: Any) -> bool: ...

    def put(self, taken: Any) -> None: ...


class PythonState:
    """The Python state that can be reached from ``roots``: modules, functions, objects.

    >>> calls = [0]
    >>> state = PythonState(calls)
    >>> calls.append(1)
    >>> state.restore()
    >>> calls
    [0]
    """

    def __init__(self, *roots: Any, but_for: Iterable[nn.Module] = ()) -> None:
        self.places = find_places(*roots, but_for=but_for)
        self.retake()

    def retake(self) -> None:
        """Remember this moment instead."""
        self._taken = [place.take() for place in self.places]

    def restore(self) -> None:
        """Put everything back in place that is not as it was; can be called again."""
        for place, taken in zip(self.places, self._taken, strict=True):
            if place.is_changed(taken):
                place.put(taken)


def find_places(*roots: Any, but_for: Iterable[nn.Module] = ()) -> list[Place]:
    """Everything that can be reached from ``roots`` and may change.

    The tensors of the modules in ``but_for`` are somebody else's to keep; those of others that a loss reaches (a
    teacher, a discriminator) are among it. Raises :class:`CannotPutBack` where something could not be put back.
    """
    finder = _Finder({id(module) for root in but_for for module in root.modules()})
    finder.visit_all(roots)
    return finder.places


def attribute_places(owner: Any) -> list[Place]:
    """The attributes of one object that are no part of every module, and what is in the containers among them."""
    own = vars(owner)
    names = [name for name in own if name not in _BASE]
    places: list[Place] = [_OtherNames(own), *[_Name(own, name) for name in names]]
    return places + [_Items(own[name]) for name in names if isinstance(own[name], dict | list | deque | set)]


def structure_places(*values: Any) -> list[Place]:
    """What stands where in containers and plain objects, at any depth; the numbers in tensors are not among it."""
    places: list[Place] = []
    seen: set[int] = set()
    to_visit = deque(values)
    while to_visit and len(seen) < MOST_ITEMS:
        value = to_visit.popleft()
        if isinstance(value, (*PLAIN, Tensor, nn.Module, type, FunctionType, MethodType)) or id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, dict | list | deque | set):
            places.append(_Items(value))
            to_visit += value.values() if isinstance(value, dict) else value
        elif isinstance(value, tuple):
            to_visit += value
        elif isinstance(own := getattr(value, "__dict__", None), dict) and _package(type(value)) not in OPAQUE:
            places += [_OtherNames(own), *[_Name(own, name) for name in own]]
            to_visit += own.values()
    return places


_BASE = frozenset(vars(nn.Module()))  # what every module has


class _Finder:
    def __init__(self, but_for: set[int]) -> None:
        self.places: list[Place] = []
        self._but_for = but_for
        self._bytes = 0
        self._seen: dict[int, Any] = {}  # the objects are kept alive, or their ids may be reused
        self._to_visit: deque[Any] = deque()

    def visit_all(self, roots: Iterable[Any]) -> None:
        self._to_visit += roots
        while self._to_visit:
            if len(self._seen) > MOST_OBJECTS:
                raise CannotPutBack(f"it reaches more than {MOST_OBJECTS:,} objects")
            self._visit(self._to_visit.popleft())

    def _visit(self, value: Any) -> None:
        if isinstance(value, PLAIN) or id(value) in self._seen:
            return
        self._seen[id(value)] = value
        if isinstance(value, Tensor | np.ndarray):
            self._add_content(value)
        elif isinstance(value, ONE_WAY) or (isinstance(value, io.IOBase) and value not in STREAMS and _writes(value)):
            raise CannotPutBack(f"it holds a {type(value).__name__}, which moves on with every call")
        elif isinstance(value, GENERATORS) and not isinstance(value, random.SystemRandom):
            self.places.append(_GeneratorState(value))
        elif isinstance(value, FunctionType):
            self._visit_function(value)
        elif isinstance(value, MethodType):
            self._to_visit += [value.__func__, value.__self__]
        elif isinstance(value, partial):
            self._to_visit += [value.func, value.args, value.keywords]
        elif isinstance(value, type):
            self._visit_class(value)
        elif not isinstance(value, ModuleType | BuiltinFunctionType | CodeType | CellType | MappingProxyType):
            self._visit_object(value)

    def _add_content(self, value: "Tensor | np.ndarray[Any, Any]") -> None:
        if _has_content(value):
            self._bytes += value.nbytes
            if self._bytes > MOST_BYTES:
                raise CannotPutBack(f"it reaches more than {MOST_BYTES >> 20} MiB of tensors besides its own")
            self.places.append(_Content(value))

    def _visit_object(self, value: Any) -> None:
        package = _package(type(value))
        if package in OPAQUE or (package == "brim" and not isinstance(value, nn.Module)):
            return
        self._visit_container(value)
        if isinstance(value, nn.Module):
            self._visit_module(value)
        own = getattr(value, "__dict__", None)
        if isinstance(own, dict):
            self._visit_names(own, list(own))
            self.places.append(_OtherNames(own))
        for name in _slots(type(value)):
            if hasattr(value, name):
                self._add(_Attribute(value, name, object.__setattr__))
        if is_users(type(value)):
            self._to_visit.append(type(value))

    def _visit_module(self, module: nn.Module) -> None:
        """Which tensors and modules stand where; and what is in the tensors, if nobody else keeps it."""
        for kind in (module._parameters, module._buffers, module._modules):
            self._seen[id(kind)] = kind
            self.places.append(_Items(kind))
        for tensor in [*module._parameters.values(), *module._buffers.values()]:
            if tensor is not None and id(tensor) not in self._seen:
                self._seen[id(tensor)] = tensor
                if id(module) not in self._but_for:
                    self._add_content(tensor)
        self._to_visit += module._modules.values()

    def _visit_class(self, kind: type) -> None:
        """A user's class: what all of its objects share, and what the code of its methods names."""
        if not is_users(kind):
            return
        for name, value in list(vars(kind).items()):
            function = getattr(value, "__func__", value)  # of static and class methods
            if isinstance(function, property):
                self._to_visit += [one for one in (function.fget, function.fset) if one is not None]
            elif isinstance(function, FunctionType):
                self._to_visit.append(function)
            elif not name.startswith("__") and not isinstance(value, MemberDescriptorType):
                self._add(_Attribute(kind, name, setattr))
        self._to_visit += kind.__bases__

    def _visit_function(self, function: FunctionType) -> None:
        if not is_users(function):
            return
        self._to_visit += [function.__defaults__, function.__kwdefaults__]
        self._visit_names(function.__dict__, list(function.__dict__))
        self.places.append(_OtherNames(function.__dict__))
        for cell in function.__closure__ or ():
            try:
                cell.cell_contents  # noqa: B018 (raises where it is not filled yet)
            except ValueError:
                continue
            self._add(_Attribute(cell, "cell_contents", setattr))
        scope, names = function.__globals__, set(names_in(function.__code__))
        self._visit_names(scope, [name for name in names if name in scope])
        for module in [scope[name] for name in names if isinstance(scope.get(name), ModuleType)]:
            if is_users(module):
                self._visit_names(vars(module), [name for name in names if name in vars(module)])

    def _visit_names(self, scope: dict[str, Any], names: list[str]) -> None:
        for name in names:
            if not name.startswith("__"):
                self._add(_Name(scope, name))

    def _add(self, place: "_Name | _Attribute") -> None:
        self.places.append(place)
        self._to_visit.append(place.now())

    def _visit_container(self, value: Any) -> None:
        if isinstance(value, dict | list | deque | set | bytearray):
            self.places.append(_Items(value))
        if isinstance(value, list | deque | tuple | set | frozenset | dict):
            items = value.values() if isinstance(value, dict) else value
            within = [item for item in items if not isinstance(item, PLAIN)]
            if len(within) > MOST_ITEMS:
                raise CannotPutBack(f"it reaches a {type(value).__name__} of {len(within):,} objects")
            self._to_visit += within


class _Name:
    """A name in a namespace: a global, or an attribute by its place in an object's dictionary."""

    def __init__(self, scope: dict[str, Any], name: str) -> None:
        self.scope = scope
        self.name = name

    def now(self) -> Any:
        return self.scope.get(self.name, _GONE)

    def take(self) -> Any:
        return _frozen(self.now())

    def is_changed(self, taken: Any) -> bool:
        return self.now() is not taken

    def put(self, taken: Any) -> None:
        if taken is _GONE:
            self.scope.pop(self.name, None)
        else:
            self.scope[self.name] = _frozen(taken)


class _Attribute:
    """An attribute that is no entry of a dictionary: of a cell, a class, a slot."""

    def __init__(self, owner: Any, name: str, put: Callable[[Any, str, Any], None]) -> None:
        self.owner = owner
        self.name = name
        self._put = put

    def now(self) -> Any:
        if isinstance(self.owner, type):
            return vars(self.owner).get(self.name)
        return getattr(self.owner, self.name, None)

    def take(self) -> Any:
        return _frozen(self.now())

    def is_changed(self, taken: Any) -> bool:
        return self.now() is not taken

    def put(self, taken: Any) -> None:
        self._put(self.owner, self.name, _frozen(taken))


class _OtherNames:
    """The names of an object's dictionary: those that were not there before go again."""

    def __init__(self, scope: dict[str, Any]) -> None:
        self.scope = scope

    def take(self) -> set[str]:
        return set(self.scope)

    def is_changed(self, taken: set[str]) -> bool:
        return len(self.scope) != len(taken) or self.scope.keys() != taken

    def put(self, taken: set[str]) -> None:
        for name in [name for name in self.scope if name not in taken]:
            del self.scope[name]


class _Items:
    """What is in a container, by identity; the container stays the same object."""

    def __init__(self, container: Any) -> None:
        self.container = container

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


class _Content:
    """The numbers in a tensor or array that is no part of a module."""

    def __init__(self, value: "Tensor | np.ndarray[Any, Any]") -> None:
        self.value = value

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


class _GeneratorState:
    """Where a random generator of the user's own stands."""

    def __init__(self, generator: Any) -> None:
        self.generator = generator

    def take(self) -> Any:
        return state_of(self.generator)

    def is_changed(self, taken: Any) -> bool:
        return True  # comparing costs as much as setting

    def put(self, taken: Any) -> None:
        set_state(self.generator, taken)


_GONE = object()


def _frozen(value: Any) -> Any:
    """The value; of an iterator, one that stands at the same place."""
    return copy.copy(value) if isinstance(value, ITERATORS) else value


def _has_content(value: "Tensor | np.ndarray[Any, Any]") -> bool:
    if isinstance(value, np.ndarray):
        return bool(value.flags.writeable) and not value.dtype.hasobject and value.nbytes > 0
    is_plain = type(value) in (Tensor, nn.Parameter) and value.layout is torch.strided
    return is_plain and not value.is_meta and not value.is_inference() and value.numel() > 0


def _writes(file: io.IOBase) -> bool:
    return not file.closed and file.writable()


def names_in(code: CodeType) -> Iterator[str]:
    """The names of globals and attributes in a piece of code and in the functions within it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from names_in(constant)


def _slots(kind: type) -> Iterator[str]:
    for base in kind.__mro__:
        slots = base.__dict__.get("__slots__", ()) if is_users(base) else ()
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__"):
                # What begins with two underscores is stored under a name with that of the class.
                yield f"_{base.__name__.lstrip('_')}{name}" if name.startswith("__") else name


def _package(kind: Any) -> str:
    return str(getattr(kind, "__module__", None) or "").split(".")[0]


def is_users(thing: Any) -> bool:
    """Whether a class, function or module is the user's own code, not Python's or a library's."""
    name = thing.__name__ if isinstance(thing, ModuleType) else getattr(thing, "__module__", None)
    package = str(name or "").split(".")[0]
    if package == "__main__":
        return True
    if package in LIBRARIES or package in sys.stdlib_module_names:
        return False
    file = getattr(sys.modules.get(str(name)), "__file__", None)
    return file is None or not str(file).startswith((sysconfig.get_path("purelib"), sysconfig.get_path("platlib")))
