"""What the code of a step names outside of itself: globals, what it closes over, attributes of modules and classes.

Found by reading the code, not by running it: from the loss function and the ``forward`` of every class of the user's,
through the functions and methods that they name. Code of libraries is not read.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any

from torch import Tensor, nn

from brim.engine.sandbox.python_state import OF_EVERY_MODULE, PLAIN
from brim.engine.sandbox.users_code import closure_of, is_users, is_users_code, names_in

MOST_FOLLOWED = 2000  # functions, classes and objects
MOST_ITEMS = 64  # of a container that are followed
ENTRIES = ("forward", "calculate_loss", "__call__", "__getattr__")
# A class that the code calls: what happens in that, and what torch calls of an autograd.Function.
CALLED = (*ENTRIES, "__init__", "__new__", "__post_init__", "backward", "setup_context")
GONE = object()
Belonging = tuple[str, Callable[[], Any]]  # what a function carries with it, and how that is looked up


@dataclass(frozen=True)
class Named:
    """A name and where it is looked up."""

    label: str
    scope: "Mapping[str, Any] | CellType"
    key: str
    home: Any = None  # a class, whose namespace can only be read

    def now(self) -> Any:
        """What it stands for; GONE where it stands for nothing."""
        if not isinstance(self.scope, CellType):
            return self.scope.get(self.key, GONE)
        try:
            return self.scope.cell_contents
        except ValueError:  # not filled yet
            return GONE

    def bind(self, value: Any) -> None:
        """Let it stand for something else."""
        if isinstance(self.scope, CellType):
            self.scope.cell_contents = value
        elif isinstance(self.scope, dict):
            self.scope[self.key] = value
        else:
            setattr(self.home, self.key, value)


class NamedState:
    """All such names of a model and its loss. ``modules``: those that the code names and that are no part of either."""

    def __init__(self, model: nn.Module, loss_fn: Any) -> None:
        self._own = {
            id(module) for root in (model, loss_fn) if isinstance(root, nn.Module) for module in root.modules()
        }
        self._named: dict[tuple[int, str], Named] = {}
        self._labels: set[str] = set()
        self._names: set[str] = set()  # that any of the code has
        self._seen: dict[int, Any] = {}  # kept alive, or their ids may be used again
        self._kinds: dict[type, tuple[str, ...]] = {}
        self.belongings: list[Belonging] = []  # of functions: defaults, attributes
        self.misses: list[Belonging] = []  # of functions that keep what they found
        self.modules: list[tuple[str, nn.Module]] = []
        for name, module in model.named_modules():
            self._read_class(type(module), ENTRIES)
            if is_users(type(module)):
                self._follow_all(name, [value for key, value in vars(module).items() if key not in OF_EVERY_MODULE])
        self._follow("loss_fn", loss_fn)
        self._read_methods()

    @property
    def named(self) -> list[Named]:
        return list(self._named.values())

    @property
    def functions(self) -> list[FunctionType]:
        """The users' functions whose code was read."""
        return [value for value in self._seen.values() if isinstance(value, FunctionType) and is_users(value)]

    @property
    def names(self) -> frozenset[str]:
        """All names of globals and attributes in that code."""
        return frozenset(self._names)

    def _follow(self, label: str, value: Any) -> None:
        """Read the code of whatever is callable in it."""
        if isinstance(value, (*PLAIN, Tensor)) or id(value) in self._seen:
            return
        if len(self._seen) >= MOST_FOLLOWED:
            return
        self._seen[id(value)] = value
        if isinstance(value, FunctionType):
            self._read_function(value)
        elif isinstance(value, MethodType):
            self._follow(label, value.__func__)
            self._follow(label, value.__self__)
        elif isinstance(value, partial):
            self._follow(label, value.func)
            self._follow_all(label, [*value.args, *value.keywords.values()])
        elif isinstance(value, type):
            self._read_class(value, CALLED)
        elif isinstance(value, nn.Module):
            self._follow_module(label, value)
        elif isinstance(value, dict):
            self._follow_all(label, value.values())
        elif isinstance(value, list | tuple | set | frozenset):
            self._follow_all(label, value)
        else:
            self._follow_object(label, value)

    def _follow_all(self, label: str, values: Iterable[Any]) -> None:
        for value in list(islice(values, MOST_ITEMS)):
            self._follow(label, value)

    def _follow_module(self, label: str, module: nn.Module) -> None:
        if id(module) not in self._own:
            self.modules.append((label, module))
        for part in module.modules():
            self._read_class(type(part), ENTRIES)

    def _follow_object(self, label: str, value: Any) -> None:
        wrapped = getattr(value, "__wrapped__", None)
        if wrapped is not None and not is_users(type(value)):  # a cache around a function
            self._follow(label, wrapped)
            info = getattr(value, "cache_info", None)
            if callable(info):
                self.misses.append((f"what {label} keeps", lambda: info().misses))
        elif is_users(type(value)):
            self._read_class(type(value), ENTRIES)
            self._follow_all(label, getattr(value, "__dict__", {}).values())

    def _read_class(self, kind: type, entries: tuple[str, ...]) -> None:
        for base in kind.__mro__:
            if is_users(base):
                known = self._kinds.get(base, ())
                self._kinds[base] = (*known, *[name for name in entries if name not in known])

    def _read_methods(self) -> None:
        """The methods that any of the code names, and what they name in turn, until nothing new comes."""
        while True:
            before = len(self._seen), len(self._names), len(self._kinds)
            for kind, entries in list(self._kinds.items()):
                for name, value in list(vars(kind).items()):
                    if name in entries or name in self._names:
                        self._read_member(kind, name, value)
            if (len(self._seen), len(self._names), len(self._kinds)) == before:
                return

    def _read_member(self, kind: type, name: str, value: Any) -> None:
        function = getattr(value, "__func__", value)  # of static and class methods
        if isinstance(function, property):
            self._follow_all(name, [one for one in (function.fget, function.fset) if one is not None])
        elif isinstance(function, FunctionType):
            self._follow(name, function)
        elif not (name.startswith("__") and name.endswith("__")):
            self._add(f"{kind.__name__}.{name} (of the class)", vars(kind), name, kind)

    def _read_function(self, function: FunctionType) -> None:
        original = getattr(function, "__wrapped__", None) or getattr(function, "_torchdynamo_orig_callable", None)
        if original is not None:
            self._follow(function.__name__, original)
        if not is_users_code(function):
            self._follow_all(
                function.__name__, [held for _, held in closure_of(function)] if is_users(function) else []
            )
            return
        names = list(dict.fromkeys(names_in(function.__code__)))
        self._names.update(names)
        self._read_belongings(function)
        scope = function.__globals__
        for name in [name for name in names if name in scope]:
            self._add(name, scope, name, scope)
        for name, module in _modules_in(function, names):
            for key in [key for key in names if key in vars(module)]:
                self._add(f"{name}.{key}", vars(module), key, vars(module))

    def _read_belongings(self, function: FunctionType) -> None:
        called = function.__qualname__.replace("<locals>.", "")
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
            self._add(name, cell, name, cell)
        if function.__defaults__ or function.__kwdefaults__:
            self.belongings.append(
                (f"the defaults of {called}", lambda: [*(function.__defaults__ or ()), function.__kwdefaults__ or {}])
            )
            self._follow_all(called, [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()])
        if any(not name.startswith("_") for name in vars(function)):
            self.belongings.append((called, lambda: vars(function)))

    def _add(self, label: str, scope: "Mapping[str, Any] | CellType", key: str, home: Any) -> None:
        place = (id(home), key)
        if place in self._named:
            return
        if label in self._labels:  # another file's, or another function's
            label = f"{label} ({getattr(home, '__name__', None) or len(self._labels)})"
        self._labels.add(label)
        named = self._named[place] = Named(label, scope, key, home)
        self._follow(label, named.now())


def _modules_in(function: FunctionType, names: list[str]) -> Iterator[tuple[str, ModuleType]]:
    """The users' modules that a function has by name: as globals, in its closure, or imported within it."""
    found = list(closure_of(function))
    found += [(name, function.__globals__.get(name, sys.modules.get(name))) for name in names]
    for name, module in found:
        if isinstance(module, ModuleType) and is_users(module):
            yield name, module
