"""What users' code keeps in Python, so that calls of it which do not count leave no trace.

A model, a loss function or a data set may count its calls, append to a list, set an attribute, rebind a global or draw
from a generator of its own. :class:`PythonState` remembers all that can be reached from it and puts it back in place:
whoever else holds the same list or object sees it as it was. Parameters and buffers of modules are not part of it;
their contents are :class:`brim.engine.oom.snapshot.Snapshot`'s.
"""

import io
import random
import sys
import types
from collections import deque
from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data.dataloader import _BaseDataLoaderIter

from brim.data.randomness.generators import GENERATORS
from brim.engine.sandbox import places
from brim.engine.sandbox.users_code import (
    closure_of,
    is_users,
    is_users_code,
    names_in,
    package_of,
    users_slots,
)
from brim.errors import a_type

# Nothing of these is anybody's training state, and putting them back would break them.
OPAQUE = ("threading", "_thread", "logging", "io", "_io", "socket", "multiprocessing", "concurrent", "asyncio", "rich")
COMPILER = ("torch._dynamo.", "torch._inductor.")  # what it has made stays: the user's code is compiled as it was
MOST_OBJECTS = 100_000
MOST_ITEMS = 10_000  # of a container that are looked into; the container itself is copied whole
MOST_BYTES = 1 << 30  # of tensors and arrays whose content is kept
PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, type(Ellipsis))
# What moves on when it is used, and cannot be copied where it stands.
ONE_WAY: tuple[type, ...] = (types.GeneratorType, map, filter, zip, enumerate, reversed, _BaseDataLoaderIter)
STREAMS = (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)
FUNCTIONS = (types.FunctionType, types.MethodType)
NO_OBJECTS = (types.ModuleType, types.BuiltinFunctionType, types.CodeType, types.CellType, types.MappingProxyType)
OF_EVERY_MODULE = frozenset(vars(nn.Module()))


class CannotPutBack(Exception):
    """Users' code holds something that a call would change for good: an iterator, an open file, too much."""


class PythonState:
    """The Python state that can be reached from ``roots``: modules, functions, objects.

    The tensors of the modules in ``but_for`` are somebody else's to keep; those of others that a loss reaches (a
    teacher, a discriminator) are among it. Raises :class:`CannotPutBack` where something could not be put back.

    >>> calls = [0]
    >>> state = PythonState(calls)
    >>> calls.append(1)
    >>> state.restore()
    >>> calls
    [0]
    """

    def __init__(self, *roots: Any, but_for: Iterable[nn.Module] = ()) -> None:
        finder = _PlaceFinder({id(module) for root in but_for for module in root.modules()})
        finder.visit_all(roots)
        self.places = finder.places
        self.retake()

    def retake(self) -> None:
        """Remember this moment instead."""
        self._taken = [place.take() for place in self.places]

    def restore(self) -> None:
        """Put everything back in place that is not as it was; can be called again."""
        for place, taken in zip(self.places, self._taken, strict=True):
            if place.is_changed(taken):
                place.put(taken)


def attribute_places(owner: Any) -> list[places.Place]:
    """The attributes of one object that are no part of every module, and what is in the containers among them."""
    own = vars(owner)
    names = [name for name in own if name not in OF_EVERY_MODULE]
    found: list[places.Place] = [places.NewNames(own), *[places.name_in(own, name) for name in names]]
    return found + [places.Items(own[name]) for name in names if isinstance(own[name], dict | list | deque | set)]


def structure_places(*values: Any) -> list[places.Place]:
    """What stands where in containers and plain objects, at any depth, and where generators stand there.

    The numbers in tensors are not among it.
    """
    found: list[places.Place] = []
    seen: set[int] = set()
    to_visit = deque(values)
    while to_visit and len(seen) < MOST_ITEMS:
        value = to_visit.popleft()
        if isinstance(value, (*PLAIN, Tensor, nn.Module, type, *FUNCTIONS)) or id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, GENERATORS) and not isinstance(value, random.SystemRandom):
            found.append(places.GeneratorState(value))
        elif isinstance(value, dict | list | deque | set):
            found.append(places.Items(value))
            to_visit += value.values() if isinstance(value, dict) else value
        elif isinstance(value, tuple):
            to_visit += value
        elif isinstance(own := getattr(value, "__dict__", None), dict) and package_of(type(value)) not in OPAQUE:
            found += [places.NewNames(own), *[places.name_in(own, name) for name in own]]
            to_visit += own.values()
    return found


class _PlaceFinder:
    def __init__(self, but_for: set[int]) -> None:
        self.places: list[places.Place] = []
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
            raise CannotPutBack(f"it holds {a_type(value)}, which moves on with every call")
        elif isinstance(value, GENERATORS) and not isinstance(value, random.SystemRandom):
            self.places.append(places.GeneratorState(value))
        elif isinstance(value, types.FunctionType):
            self._visit_function(value)
        elif isinstance(value, types.MethodType):
            self._to_visit += [value.__func__, value.__self__]
        elif isinstance(value, partial):
            self._to_visit += [value.func, value.args, value.keywords]
        elif isinstance(value, type):
            self._visit_class(value)
        elif not isinstance(value, NO_OBJECTS):
            self._visit_object(value)

    def _add_content(self, value: "Tensor | np.ndarray[Any, Any]") -> None:
        if places.has_content(value):
            self._bytes += value.nbytes
            if self._bytes > MOST_BYTES:
                raise CannotPutBack(f"it reaches more than {MOST_BYTES >> 20} MiB of tensors besides its own")
            self.places.append(places.Content(value))

    def _visit_object(self, value: Any) -> None:
        package = package_of(type(value))
        is_foreign = package == "brim" or type(value).__module__.startswith(COMPILER)
        if package in OPAQUE or (is_foreign and not isinstance(value, nn.Module)):
            return
        self._visit_container(value)
        if isinstance(value, nn.Module):
            self._visit_module(value)
        own = getattr(value, "__dict__", None)
        if isinstance(own, dict):
            self._visit_names(own, list(own))
            self.places.append(places.NewNames(own))
        for name in users_slots(type(value)):
            if hasattr(value, name):
                self._add(places.attribute_of(value, name, object.__setattr__))
        if is_users(type(value)):
            self._to_visit.append(type(value))

    def _visit_module(self, module: nn.Module) -> None:
        """Which tensors and modules stand where; and what is in the tensors, if nobody else keeps it."""
        for kind in (module._parameters, module._buffers, module._modules):
            self._seen[id(kind)] = kind
            if isinstance(kind, dict):  # nothing is added to a scripted module
                self.places.append(places.Items(kind))
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
            elif isinstance(function, types.FunctionType):
                self._to_visit.append(function)
            elif not name.startswith("__") and not isinstance(value, types.MemberDescriptorType):
                self._add(places.attribute_of(kind, name))
        self._to_visit += kind.__bases__

    def _visit_function(self, function: types.FunctionType) -> None:
        if not is_users(function):
            return
        self._to_visit += [function.__defaults__, function.__kwdefaults__]
        self._visit_names(function.__dict__, list(function.__dict__))
        self.places.append(places.NewNames(function.__dict__))
        if not is_users_code(function):  # around the user's: its names are a library's affair
            self._to_visit += [getattr(function, "__wrapped__", None), *[held for _, held in closure_of(function)]]
            return
        for cell in function.__closure__ or ():
            try:
                cell.cell_contents  # noqa: B018 (raises where it is not filled yet)
            except ValueError:
                continue
            self._add(places.attribute_of(cell, "cell_contents"))
        scope, names = function.__globals__, set(names_in(function.__code__))
        self._visit_names(scope, [name for name in names if name in scope])
        for module in [scope[name] for name in names if isinstance(scope.get(name), types.ModuleType)]:
            if is_users(module):
                self._visit_names(vars(module), [name for name in names if name in vars(module)])

    def _visit_names(self, scope: dict[str, Any], names: list[str]) -> None:
        for name in names:
            if not name.startswith("__"):
                self._add(places.name_in(scope, name))

    def _add(self, place: places.Binding) -> None:
        self.places.append(place)
        self._to_visit.append(place.now())

    def _visit_container(self, value: Any) -> None:
        if isinstance(value, dict | list | deque | set | bytearray):
            self.places.append(places.Items(value))
        if isinstance(value, list | deque | tuple | set | frozenset | dict):
            items = value.values() if isinstance(value, dict) else value
            within = [item for item in items if not isinstance(item, PLAIN)]
            if len(within) > MOST_ITEMS:
                raise CannotPutBack(f"it reaches {a_type(value)} of {len(within):,} objects")
            self._to_visit += within


def _writes(file: io.IOBase) -> bool:
    return not file.closed and file.writable()
