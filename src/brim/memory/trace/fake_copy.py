"""A model that exists, as a model of fake tensors, without copying a weight."""

import copy
import random
import sys
import weakref
from collections import defaultdict, deque
from collections.abc import Iterator
from enum import Enum
from functools import partial
from types import CellType, FunctionType, MethodType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from brim.errors import ModelError
from brim.memory.trace.sparse import parts_of_real
from brim.user_line import is_users_own

DRAWS = (np.random.Generator, np.random.RandomState, random.Random)
SMALL = 1 << 20  # elements of a buffer of whole numbers whose values are worth keeping


class FakeCopy:
    """Copies a module tree: modules, containers, optimizers, generators and objects of the user's classes anew; tensors
    fake, everything else shared.

    The copy can be trained on fake tensors without leaving a trace in the original, which may be on any device.
    """

    def __init__(self) -> None:
        self._made: dict[int, Any] = {}
        self.values: list[tuple[Tensor, Tensor]] = []  # fake tensors of whole numbers, and what they hold

    def of(self, value: Any) -> Any:
        if isinstance(value, str | int | float | None):  # of which a data set that a model knows may have millions
            return value
        if id(value) in self._made:
            return self._made[id(value)]
        if isinstance(value, Tensor):
            return self._remember(value, self._tensor(value))
        if isinstance(value, nn.Module):
            return self._module(value)
        if isinstance(value, MethodType | FunctionType | partial):
            return self._callable(value)
        if isinstance(value, RemovableHandle):
            return self._handle(value)
        if isinstance(value, weakref.ref):
            target = value()
            known = isinstance(target, Tensor) or id(target) in self._made
            return weakref.ref(self.of(target)) if known and target is not None else value
        if isinstance(value, DRAWS):
            return self._remember(value, copy.deepcopy(value))
        if isinstance(value, Optimizer) or is_users_object(value) or _is_configuration(value):
            return self._object(value)
        return self._container(value)

    def _module(self, module: nn.Module) -> nn.Module:
        if type(module).__name__ == "OptimizedModule":  # what torch.compile made is bound to the real module
            return self._remember(module, self.of(module._orig_mod))  # type: ignore[no-any-return]
        copied: nn.Module = self._remember(module, module.__class__.__new__(module.__class__))
        for name, value in vars(module).items():
            copied.__dict__[name] = None if name == "_compiled_call_impl" else self.of(value)
        return copied

    def _object(self, value: Any) -> Any:
        """One that counts, keeps tensors or knows the module: with the copy, it shall do so apart."""
        copied = self._remember(value, object.__new__(type(value)))
        for name, held in _attributes(value):
            object.__setattr__(copied, name, self.of(held))
        return copied

    def _container(self, value: Any) -> Any:
        if type(value) in (tuple, set):
            return type(value)(self.of(item) for item in value)
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)._make(self.of(item) for item in value)  # type: ignore[attr-defined]
        if isinstance(value, np.ndarray) and value.size <= SMALL:
            return self._remember(value, value.copy())
        if type(value) in (list, deque):
            items = self._remember(value, deque(maxlen=value.maxlen) if isinstance(value, deque) else [])
            items.extend(self.of(item) for item in value)
            return items
        if isinstance(value, dict) and type(value).__module__ in ("builtins", "collections"):
            empty = defaultdict(value.default_factory) if isinstance(value, defaultdict) else type(value)()
            copied = self._remember(value, empty)
            copied.update({self.of(key) if isinstance(key, Tensor) else key: self.of(v) for key, v in value.items()})
            return copied
        return value

    def _callable(self, value: Any) -> Any:
        """A function that works on the module, or on tensors of it, works on the copy; others are shared."""
        self._remember(value, value)  # while it is looked at: it may know itself
        if isinstance(value, MethodType):
            owner = self._within(value.__self__)
            return value if owner is value.__self__ else self._remember(value, MethodType(value.__func__, owner))
        if isinstance(value, partial):
            parts = (value.func, value.args, value.keywords)
            func, args, keywords = (self._within(part) for part in parts)
            changed = any(new is not old for new, old in zip((func, args, keywords), parts, strict=True))
            return self._remember(value, partial(func, *args, **keywords)) if changed else value
        return self._closure(value)

    def _closure(self, function: FunctionType) -> Any:
        cells = function.__closure__ or ()
        full = [cell for cell in cells if cell != CellType()]  # an empty one waits for a name that is not yet set
        inside = {id(cell): self._within(cell.cell_contents) for cell in full}
        if all(inside[id(cell)] is cell.cell_contents for cell in full):
            return function
        closure = tuple(CellType(inside[id(cell)]) if id(cell) in inside else cell for cell in cells)
        copied = FunctionType(
            function.__code__, function.__globals__, function.__name__, function.__defaults__, closure
        )
        copied.__kwdefaults__ = function.__kwdefaults__
        copied.__dict__.update(function.__dict__)
        return self._remember(function, copied)

    def _within(self, value: Any) -> Any:
        """What a function holds, copied only if a module or a tensor is in it: a list it fills for the user stays."""
        return self.of(value) if _holds_tensors(value, set()) else value

    def _handle(self, handle: RemovableHandle) -> RemovableHandle:
        """A hook that is taken off the copy stays on the original."""
        hooks = handle.hooks_dict_ref()
        if hooks is None:
            return handle
        copied = self._remember(handle, RemovableHandle.__new__(RemovableHandle))
        copied.id, copied.hooks_dict_ref = handle.id, weakref.ref(self.of(hooks))
        extra = [ref() for ref in handle.extra_dict_ref]
        copied.extra_dict_ref = tuple(weakref.ref(self.of(more)) for more in extra if more is not None)
        return copied  # type: ignore[no-any-return]

    def _tensor(self, tensor: Tensor) -> Tensor:
        if isinstance(tensor, UninitializedParameter | UninitializedBuffer):
            return type(tensor)(requires_grad=tensor.requires_grad, dtype=tensor.dtype)  # type: ignore[call-arg]
        if tensor.layout == torch.sparse_coo and not tensor.requires_grad:
            indices, values = map(self.of, parts_of_real(tensor))
            return torch.sparse_coo_tensor(indices, values, tensor.shape, is_coalesced=tensor.is_coalesced())
        if tensor.layout != torch.strided:
            raise ModelError(
                f"the model holds a tensor of layout {tensor.layout}, whose memory cannot be forecast; make it one of "
                "torch.sparse_coo, or dense"
            )
        fake = torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype)
        whole = not tensor.is_floating_point() and not tensor.is_complex()
        if whole and tensor.numel() <= SMALL and not tensor.is_meta:
            self.values.append((fake, tensor))
        if isinstance(tensor, nn.Parameter):
            return nn.Parameter(fake, requires_grad=tensor.requires_grad)
        return fake.requires_grad_(tensor.requires_grad)

    def _remember(self, value: Any, copied: Any) -> Any:
        self._made[id(value)] = copied
        return copied


def is_users_object(value: Any) -> bool:
    """Whether it is of a plain class in the user's own code: two of them do not fight over anything in the system.

    >>> is_users_object(object()), is_users_object(nn.Linear)
    (False, False)
    """
    kind: Any = type(value)
    if kind.__new__ is not object.__new__ or kind.__reduce_ex__ is not object.__reduce_ex__ or hasattr(kind, "__del__"):
        return False
    module = sys.modules.get(kind.__module__)
    file = getattr(module, "__file__", None) or ("" if kind.__module__ == "__main__" else None)  # of a notebook
    return file is not None and not isinstance(value, type | Enum) and is_users_own(file)


def _is_configuration(value: Any) -> bool:
    """Of transformers, where a first forward pass writes down what kind of labels it was given, for all others."""
    return any(kind.__name__.lower() == "pretrainedconfig" for kind in type(value).__mro__)


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    yield from getattr(value, "__dict__", {}).items()
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                yield name, getattr(value, name)


def _holds_tensors(value: Any, seen: set[int]) -> bool:
    if isinstance(value, Tensor | nn.Module):
        return True
    if id(value) in seen:
        return False
    seen.add(id(value))
    inside: list[Any] = []
    if isinstance(value, MethodType):
        inside = [value.__self__]
    elif isinstance(value, FunctionType):
        inside = [cell.cell_contents for cell in value.__closure__ or () if cell != CellType()]
    elif isinstance(value, partial):
        inside = [value.func, value.args, value.keywords]
    elif isinstance(value, dict):
        inside = list(value.values())
    elif isinstance(value, list | tuple | set | deque):
        inside = list(value)
    elif is_users_object(value):
        inside = [held for _, held in _attributes(value)]
    return any(_holds_tensors(item, seen) for item in inside)
