"""Who keeps Python state of the user's: modules, objects, functions, and names that the code of a step refers to.

Each has a label by which it is found again in another process of the same script. Only what the user's code names is
asked of an object: what libraries keep in theirs (flags, caches, hooks) is their affair.
"""

import sys
from argparse import Namespace
from collections import deque
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from types import CodeType, FunctionType, MethodType, SimpleNamespace
from typing import Any, Protocol

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from brim.engine.sandbox.named_state import GONE, Named, NamedState
from brim.engine.sandbox.python_state import OF_EVERY_MODULE, OPAQUE
from brim.engine.sandbox.users_code import (
    LIBRARIES,
    is_users,
    is_users_code,
    names_in,
    package_of,
    users_slots,
)

MOST_HOLDERS = 20_000
MOST_ITEMS = 64  # of a container that are looked into
NAMES = ""  # the label of what names stand for
NAMESPACES = (SimpleNamespace, Namespace)
BY_OTHER_MEANS = frozenset(("setattr", "vars", "__dict__"))  # how code writes attributes without naming them
TORCHS = (Optimizer, LRScheduler, torch.amp.GradScaler)  # of a loss that trains something by itself


class Holder(Protocol):
    """Keeps values by name."""

    def values(self) -> dict[str, Any]: ...

    def put(self, name: str, value: Any) -> None: ...

    def key(self, name: str) -> str | None:
        """By which name code reads it; None where that is not known."""

    def drop(self, name: str) -> None:
        """A name that is no more; where names do not come and go, nothing."""


class ObjectHolder:
    """The attributes of an object that the user's code names, or are numbers of a module of torch's.

    So are buffers of a module that its ``state_dict()`` leaves out (``persistent=False``).
    """

    def __init__(self, owner: Any, names: frozenset[str]) -> None:
        self.owner = owner
        self._names = names
        self._is_torchs = isinstance(owner, nn.Module) and package_of(type(owner)) in LIBRARIES

    def values(self) -> dict[str, Any]:
        own = {**getattr(self.owner, "__dict__", {}), **self._unsaved_buffers()}
        found = {name: value for name, value in own.items() if self._is_asked(name, value)}
        slots = [name for name in users_slots(type(self.owner)) if hasattr(self.owner, name)]
        return found | {name: getattr(self.owner, name) for name in slots}

    def _is_asked(self, name: str, value: Any) -> bool:
        if name in OF_EVERY_MODULE and isinstance(self.owner, nn.Module):
            return False
        if name in self._names:
            return True
        if self._is_torchs:  # a rate of dropout that a callback lowers
            return package_of(type(self.owner)) == "torch" and type(value) in (bool, int, float)
        return isinstance(self.owner, NAMESPACES) or bool(self._names & BY_OTHER_MEANS)

    def _unsaved_buffers(self) -> dict[str, Any]:
        if not isinstance(self.owner, nn.Module):
            return {}
        buffers = dict(self.owner._buffers)
        return {name: buffers.get(name) for name in self.owner._non_persistent_buffers_set}

    def put(self, name: str, value: Any) -> None:
        if name in self._unsaved_buffers():
            self.owner._buffers[name] = value
        else:
            object.__setattr__(self.owner, name, value)

    def key(self, name: str) -> str | None:
        others = [base for base in type(self.owner).__mro__ if base not in (object, nn.Module)]
        return name if all(map(is_users, others)) else None  # code of libraries reads what it likes

    def drop(self, name: str) -> None:
        if name in self._unsaved_buffers():
            delattr(self.owner, name)
        else:
            object.__delattr__(self.owner, name)


class FunctionHolder:
    """What a function carries with it: attributes, and default values that it may append to."""

    def __init__(self, function: FunctionType) -> None:
        self.function = function

    def values(self) -> dict[str, Any]:
        function = self.function
        found = {name: value for name, value in vars(function).items() if not name.startswith("_")}
        defaults = enumerate(function.__defaults__ or ())
        return found | {f"default {place}": value for place, value in defaults} | dict(function.__kwdefaults__ or {})

    def put(self, name: str, value: Any) -> None:
        if name in vars(self.function) or name not in self.values():
            setattr(self.function, name, value)  # a default that can move is a container, and has become what it was

    def key(self, name: str) -> str | None:
        return name if name in vars(self.function) else None

    def drop(self, name: str) -> None:
        vars(self.function).pop(name, None)


class NamesHolder:
    """Globals, variables of closures and attributes of classes. None has to do with another."""

    def __init__(self, named: Iterable[Named]) -> None:
        self._named = {one.label: one for one in named}

    def values(self) -> dict[str, Any]:
        found = {label: one.now() for label, one in self._named.items()}
        return {label: value for label, value in found.items() if value is not GONE}

    def put(self, name: str, value: Any) -> None:
        self._named[name].bind(value)

    def key(self, name: str) -> str | None:
        return self._named[name].key

    def drop(self, name: str) -> None:
        pass


class StateDictHolder:
    """An object that says itself what it keeps."""

    def __init__(self, owner: Any) -> None:
        self.owner = owner

    def state(self) -> Any:
        return self.owner.state_dict()

    def load(self, state: Any) -> None:
        self.owner.load_state_dict(state)

    def values(self) -> dict[str, Any]:
        return {}

    def put(self, name: str, value: Any) -> None:
        pass

    def key(self, name: str) -> str | None:
        return None

    def drop(self, name: str) -> None:
        pass


def find_holders(
    model: nn.Module, loss_fn: Any, but_for: Iterable[Any] = ()
) -> tuple[dict[str, Holder], list[CodeType]]:
    """All that a model and its loss reach, by label, and the user's code there; ``but_for`` is kept by others."""
    finder = _HolderFinder(NamedState(model, loss_fn), but_for)
    return finder.find(model, loss_fn), finder.codes()


class _HolderFinder:
    def __init__(self, named: NamedState, but_for: Iterable[Any]) -> None:
        self._named = named
        self._seen: dict[int, Any] = {id(one): one for one in but_for}
        self._found: dict[str, Holder] = {}
        self._names: dict[type, frozenset[str]] = {}
        self._to_visit: deque[tuple[str, Any]] = deque()

    def find(self, model: nn.Module, loss_fn: Any) -> dict[str, Holder]:
        self._to_visit += [("model", model), ("loss_fn", loss_fn), *self._named.modules]
        names = NamesHolder(self._named.named)
        self._add(NAMES, names)
        self._to_visit += names.values().items()
        for function in self._named.functions:
            self._add(function.__qualname__.replace("<locals>.", ""), FunctionHolder(function))
        while self._to_visit and len(self._found) < MOST_HOLDERS:
            self._visit(*self._to_visit.popleft())
        return self._found

    def codes(self) -> list[CodeType]:
        """The code of all functions and classes that were found."""
        return [*[one.__code__ for one in self._named.functions if is_users_code(one)], *codes_of(self._names)]

    def _add(self, label: str, holder: Holder) -> None:
        while label in self._found:  # another of the same name
            label += "'"
        self._found[label] = holder

    def _visit(self, label: str, value: Any) -> None:
        if id(value) in self._seen or isinstance(value, type | FunctionType):
            return
        if isinstance(value, nn.Module):
            self._visit_module(label, value)
        elif isinstance(value, MethodType):
            self._to_visit.append((label, value.__self__))
        elif isinstance(value, partial):
            held = [*enumerate(value.args), *value.keywords.items()]
            self._to_visit += [(label, value.func), *[(f"{label}.{key}", item) for key, item in held]]
        elif isinstance(value, list | tuple | deque):
            self._to_visit += [(f"{label}[{place}]", item) for place, item in enumerate(islice(value, MOST_ITEMS))]
        elif isinstance(value, dict):
            self._to_visit += [(f"{label}[{key!r}]", item) for key, item in islice(value.items(), MOST_ITEMS)]
        elif isinstance(value, TORCHS) or (is_users(type(value)) and has_state_dict(value)):
            self._add(label, StateDictHolder(value))
        elif isinstance(value, NAMESPACES) or (is_users(type(value)) and package_of(type(value)) not in OPAQUE):
            self._visit_object(label, value)
        self._seen[id(value)] = value  # kept alive, or its id may be used again

    def _visit_module(self, label: str, root: nn.Module) -> None:
        for name, module in root.named_modules():
            if id(module) not in self._seen:
                self._seen[id(module)] = module
                self._visit_object(f"{label}.{name}".rstrip("."), module)

    def _visit_object(self, label: str, value: Any) -> None:
        kind = type(value)
        if kind not in self._names:
            self._names[kind] = self._named.names | _names_of(kind)
        holder = ObjectHolder(value, self._names[kind])
        self._add(label, holder)
        self._to_visit += [(f"{label}.{name}", held) for name, held in holder.values().items()]


def has_state_dict(value: Any) -> bool:
    """Whether the user has written what is kept of it; brim's callbacks have it from their base, where it is empty."""
    methods = [getattr(type(value), name, None) for name in ("state_dict", "load_state_dict")]
    return all(callable(method) and is_users(method) for method in methods)


def _names_of(kind: type) -> frozenset[str]:
    """What the methods of a class name."""
    return frozenset(name for code in codes_of([kind]) for name in names_in(code))


def codes_of(kinds: Iterable[type]) -> Iterator[CodeType]:
    """The code of classes' methods, and of those of bases that are of no library known here."""
    bases = {base: None for kind in kinds for base in kind.__mro__}
    for base in bases:
        if package_of(base) not in LIBRARIES and package_of(base) not in sys.stdlib_module_names:
            yield from _own_codes(base)


def _own_codes(kind: type) -> Iterator[CodeType]:
    for value in vars(kind).values():
        members = (value.fget, value.fset) if isinstance(value, property) else (getattr(value, "__func__", value),)
        yield from (one.__code__ for one in members if isinstance(one, FunctionType))
