"""What users' code keeps in Python, so that calls of it which do not count leave no trace.

A model, a loss function or a data set may count its calls, append to a list, set an attribute, rebind a global or draw
from a generator of its own. :class:`PythonState` remembers all that can be reached from it and puts it back in place:
whoever else holds the same list or object sees it as it was. Parameters and buffers of modules are not part of it;
their contents are :class:`brim.engine.snapshot.Snapshot`'s.
"""

import copy
import itertools
import random
import sys
import sysconfig
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MappingProxyType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

LIBRARIES = ("torch", "numpy", "transformers", "peft", "brim", "builtins", "lightning", "accelerate", "torchvision")
# Nothing of these is anybody's training state, and putting them back would break them.
OPAQUE = ("threading", "_thread", "logging", "io", "_io", "socket", "multiprocessing", "concurrent", "asyncio", "rich")
MOST_OBJECTS = 20_000
MOST_ITEMS = 256  # of a container that are looked into; the container itself is copied whole
MOST_BYTES = 16 << 20  # of a loose tensor or array whose content is kept
PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, type(Ellipsis))
ITERATORS: tuple[type, ...] = (itertools.count, itertools.cycle, type(iter([])), type(iter(range(0))), type(iter(())))
Undo = Callable[[], None]


class PythonState:
    """The Python state that can be reached from ``roots``: modules, functions, objects.

    >>> calls = [0]
    >>> def loss(model, batch): calls[0] += 1
    >>> state = PythonState(loss)
    >>> loss(None, None)
    >>> state.restore()
    >>> calls
    [0]
    """

    def __init__(self, *roots: Any) -> None:
        self._undo: list[Undo] = []
        self._seen: dict[int, Any] = {}  # the objects are kept alive, or their ids may be reused
        self._to_visit: deque[Any] = deque(roots)
        while self._to_visit and len(self._seen) < MOST_OBJECTS:
            self._visit(self._to_visit.popleft())

    def restore(self) -> None:
        """Put everything back in place that is not as it was; can be called again."""
        for undo in self._undo:
            undo()

    def _visit(self, value: Any) -> None:
        if isinstance(value, PLAIN) or id(value) in self._seen:
            return
        self._seen[id(value)] = value
        if isinstance(value, Tensor):
            if not isinstance(value, nn.Parameter):
                self._keep_content(value, *_tensor_content(value))
        elif isinstance(value, np.ndarray):
            self._keep_content(value, *_array_content(value))
        elif (generator := _generator_access(value)) is not None:
            get, put = generator
            state = get()
            self._undo.append(lambda: put(state))
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

    def _visit_object(self, value: Any) -> None:
        if _package(type(value)) in OPAQUE:
            return
        self._keep_container(value)
        if isinstance(value, nn.Module):
            self._visit_module(value)
        own = getattr(value, "__dict__", None)
        if isinstance(own, dict):
            self._keep_names(own, list(own))
        for name in _slots(type(value)):
            self._keep_slot(value, name)
        if _is_users(type(value)):
            self._to_visit.append(type(value))

    def _visit_module(self, module: nn.Module) -> None:
        """Which tensors and modules stand where; what is in the tensors is somebody else's to keep."""
        for kind in (module._parameters, module._buffers, module._modules):
            self._seen[id(kind)] = kind
            self._keep_dict(kind)
        for buffer in module._buffers.values():
            self._seen[id(buffer)] = buffer
        self._to_visit += module._modules.values()

    def _visit_class(self, kind: type) -> None:
        """A user's class: what all of its objects share, and what the code of its methods names."""
        if not _is_users(kind):
            return
        for name, value in list(vars(kind).items()):
            function = getattr(value, "__func__", value)  # of static and class methods
            if isinstance(function, property):
                self._to_visit += [one for one in (function.fget, function.fset) if one is not None]
            elif isinstance(function, FunctionType):
                self._to_visit.append(function)
            elif not name.startswith("__"):
                self._keep(partial(setattr, kind, name), partial(_of_class, kind, name), value)
        self._to_visit += kind.__bases__

    def _visit_function(self, function: FunctionType) -> None:
        if not _is_users(function):
            return
        self._to_visit += [function.__defaults__, function.__kwdefaults__]
        self._keep_names(function.__dict__, list(function.__dict__))
        for cell in function.__closure__ or ():
            try:
                value = cell.cell_contents
            except ValueError:  # not filled yet
                continue
            self._keep(partial(setattr, cell, "cell_contents"), partial(getattr, cell, "cell_contents"), value)
        scope, names = function.__globals__, set(_names_in(function.__code__))
        self._keep_names(scope, [name for name in names if name in scope])
        for module in [scope[name] for name in names if isinstance(scope.get(name), ModuleType)]:
            if _is_users(module):
                self._keep_names(vars(module), [name for name in names if name in vars(module)])

    def _keep_names(self, scope: dict[str, Any], names: list[str]) -> None:
        """What these names stand for in a namespace; names that are not there yet are nobody's here."""
        known = set(names)
        is_object = len(known) == len(scope)
        for name in names:
            value = scope[name]
            if not name.startswith("__"):
                self._keep(partial(scope.__setitem__, name), partial(scope.get, name), value)
        if is_object:  # all of its names are known, so others are new
            self._undo.append(lambda: _forget_others(scope, known))

    def _keep_slot(self, value: Any, name: str) -> None:
        if hasattr(value, name):
            held = getattr(value, name)
            self._keep(partial(object.__setattr__, value, name), partial(getattr, value, name, None), held)

    def _keep(self, put: Callable[[Any], None], get: Callable[[], Any], value: Any) -> None:
        """One place that holds a value."""
        kept = copy.copy(value) if isinstance(value, ITERATORS) else value
        is_iterator = kept is not value

        def undo() -> None:
            if is_iterator:
                put(copy.copy(kept))
            elif get() is not value:
                put(value)

        self._undo.append(undo)
        self._to_visit.append(value)

    def _keep_container(self, value: Any) -> None:
        if isinstance(value, dict):
            self._keep_dict(value)
        elif isinstance(value, list | deque):
            self._keep_sequence(value)
        elif isinstance(value, set):
            members = set(value)
            self._undo.append(lambda: None if value == members else _refill(value, members))
        elif isinstance(value, bytearray):
            content = bytes(value)
            self._undo.append(lambda: None if value == content else value.__setitem__(slice(None), content))
        if isinstance(value, list | deque | tuple | set | frozenset):
            self._to_visit += itertools.islice(value, MOST_ITEMS)
        elif isinstance(value, dict):
            self._to_visit += itertools.islice(value.values(), MOST_ITEMS)

    def _keep_dict(self, value: dict[Any, Any]) -> None:
        content = _frozen_items(value.items())

        def undo() -> None:
            if len(value) != len(content) or any(
                key != known or item is not held
                for (key, item), (known, held) in zip(value.items(), content, strict=True)
            ):
                value.clear()
                value.update({key: copy.copy(held) if isinstance(held, ITERATORS) else held for key, held in content})

        self._undo.append(undo)

    def _keep_sequence(self, value: list[Any] | deque[Any]) -> None:
        content = [held for _, held in _frozen_items(enumerate(value))]

        def undo() -> None:
            if len(value) != len(content) or any(a is not b for a, b in zip(value, content, strict=True)):
                value.clear()
                value.extend([copy.copy(held) if isinstance(held, ITERATORS) else held for held in content])

        self._undo.append(undo)

    def _keep_content(self, value: Any, size: int, take: Callable[[], Any], put: Callable[[Any], None]) -> None:
        if 0 < size <= MOST_BYTES:
            content = take()
            self._undo.append(lambda: put(content))


def _frozen_items(items: Iterable[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    return [(key, copy.copy(item) if isinstance(item, ITERATORS) else item) for key, item in items]


def _forget_others(scope: dict[str, Any], known: set[str]) -> None:
    for name in [name for name in scope if name not in known]:
        del scope[name]


def _refill(value: set[Any], members: set[Any]) -> None:
    value.clear()
    value.update(members)


def _of_class(kind: type, name: str) -> Any:
    return vars(kind).get(name)


def _tensor_content(tensor: Tensor) -> tuple[int, Callable[[], Any], Callable[[Any], None]]:
    """How large a loose tensor is, and how its content is taken and put back where it has changed."""
    if tensor.layout is not torch.strided or tensor.is_meta or tensor.is_inference() or type(tensor) is not Tensor:
        return 0, lambda: None, lambda content: None

    def put(content: Tensor) -> None:
        if content.shape == tensor.shape and not torch.equal(content, tensor.detach()):
            with torch.no_grad():
                tensor.detach().copy_(content)

    return tensor.numel() * tensor.element_size(), lambda: tensor.detach().clone(), put


def _array_content(array: "np.ndarray[Any, Any]") -> tuple[int, Callable[[], Any], Callable[[Any], None]]:
    def put(content: "np.ndarray[Any, Any]") -> None:
        if content.shape == array.shape and content.tobytes() != array.tobytes():
            array[...] = content

    return array.nbytes if array.flags.writeable and not array.dtype.hasobject else 0, array.copy, put


def _generator_access(value: Any) -> tuple[Callable[[], Any], Callable[[Any], object]] | None:
    """How the state of a random generator is read and set; None for anything else."""
    if isinstance(value, torch.Generator):
        return value.get_state, lambda state: None if torch.equal(value.get_state(), state) else value.set_state(state)
    if isinstance(value, random.Random) and not isinstance(value, random.SystemRandom):
        return value.getstate, value.setstate
    if isinstance(value, np.random.RandomState):
        return value.get_state, value.set_state
    if isinstance(value, np.random.Generator):
        bits = value.bit_generator
        return lambda: copy.deepcopy(bits.state), lambda state: setattr(bits, "state", state)
    return None


def _names_in(code: CodeType) -> Iterator[str]:
    """The names of globals and attributes in a piece of code and in the functions within it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_in(constant)


def _slots(kind: type) -> Iterator[str]:
    for base in kind.__mro__:
        slots = base.__dict__.get("__slots__", ()) if _is_users(base) else ()
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__"):
                # What begins with two underscores is stored under a name with that of the class.
                yield f"_{base.__name__.lstrip('_')}{name}" if name.startswith("__") else name


def _package(kind: Any) -> str:
    return str(getattr(kind, "__module__", None) or "").split(".")[0]


def _is_users(thing: Any) -> bool:
    """Whether a class, function or module is the user's own code, not Python's or a library's."""
    name = thing.__name__ if isinstance(thing, ModuleType) else getattr(thing, "__module__", None)
    package = str(name or "").split(".")[0]
    if package == "__main__":
        return True
    if package in LIBRARIES or package in sys.stdlib_module_names:
        return False
    file = getattr(sys.modules.get(str(name)), "__file__", None)
    return file is None or not str(file).startswith((sysconfig.get_path("purelib"), sysconfig.get_path("platlib")))
