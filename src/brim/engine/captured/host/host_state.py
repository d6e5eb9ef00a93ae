"""What the host decides within a step: numbers in Python objects, hooks.

A graph holds what the device did. Whatever a step counts, draws or keeps in Python happens once, at capture, and never
again; so a step that does any of this is not captured. Looked at are the model, its loss, and what their code names:
globals, what functions close over, attributes of modules and classes (see :mod:`brim.engine.sandbox.named_state`).
"""

from collections import deque
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import count, islice
from types import GeneratorType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from brim.data.probing.attributes import attributes_of
from brim.data.randomness.generators import GENERATORS, mark_of
from brim.engine.captured.report import Refusal
from brim.engine.sandbox.named_state import Belonging, Named, NamedState
from brim.engine.sandbox.python_state import OPAQUE

PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)
MOST_ITEMS = 64  # of a container that are looked at
INTERNAL = {"_parameters", "_buffers", "_modules"}
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
TRUSTED = ("torch.", "peft.", "transformers.")  # their hooks compute, and keep nothing


def host_state(model: nn.Module, loss_fn: Any) -> dict[str, Any]:
    """Everything plain that the model, its loss and what their code names keep in Python, by name."""
    found = module_state(model)
    for name, value in () if loss_fn is None else loss_belongings(loss_fn):
        look_at(found, name, value)
    names = NamedState(model, loss_fn)
    for label, module in names.modules:
        found.update(module_state(module, f"{label}."))
    look_at_names(found, names.named, [*names.belongings, *names.misses])
    return found


def look_at_names(found: dict[str, Any], named: Iterable[Named], belongings: Iterable[Belonging]) -> None:
    """The same of what names stand for, and of what functions carry with them."""
    for one in named:
        look_at(found, one.label, one.now())
    for label, value_of in belongings:
        look_at(found, label, value_of())


def module_state(root: nn.Module, label: str = "") -> dict[str, Any]:
    """The same of a module and its parts."""
    found: dict[str, Any] = {}
    for name, module in root.named_modules(remove_duplicate=True):
        prefix = f"{label}{name or type(module).__name__}."
        for key, value in module.__dict__.items():
            if key not in INTERNAL:
                look_at(found, prefix + key, value)
        if not type(module).__module__.startswith("torch."):
            for key, value in vars(type(module)).items():
                if isinstance(value, int | float):  # counts that all of its kind share
                    found[f"{type(module).__name__}.{key} (of the class)"] = value  # an object's own may hide it
        for kind, tensors in (("buffer", module._buffers), ("parameter", module._parameters)):
            for key, tensor in tensors.items():
                found[f"{prefix}{key} ({kind})"] = None if tensor is None else _Place(tensor)
    return found


def tensors_in(found: dict[str, Any]) -> Iterator[tuple[str, Tensor]]:
    """The tensors among what was found."""
    for name, value in found.items():
        if isinstance(value, _Place):
            yield name, value.tensor


class _Place:
    """Where a tensor is. It is kept alive, or another one could be put into the same place."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        self.key = (tensor.data_ptr() if tensor.layout is torch.strided else id(tensor), tuple(tensor.shape))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Place) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


def loss_belongings(loss_fn: Any) -> Iterable[tuple[str, Any]]:
    """What a loss function carries with it, beside what its code names: attributes, arguments, a method's object."""
    if isinstance(loss_fn, nn.Module):
        for name, module in loss_fn.named_modules():
            yield f"loss_fn.{name}".rstrip("."), dict(vars(module))
        return
    if isinstance(loss_fn, partial):
        yield "the arguments of loss_fn", [*loss_fn.args, loss_fn.keywords]
        yield from loss_belongings(loss_fn.func)
        return
    owner = getattr(loss_fn, "__self__", None)
    if owner is not None:
        yield from loss_belongings(owner) if isinstance(owner, nn.Module) else [("the object of loss_fn", owner)]
    yield from [(f"loss_fn.{name}", value) for name, value in getattr(loss_fn, "__dict__", {}).items()]


def look_at(found: dict[str, Any], name: str, value: Any, depth: int = 2) -> None:
    """Note what can be compared of a value, and of what it holds."""
    plain = _plain(value)
    if plain is not None:
        found[name] = plain
    elif isinstance(value, dict):
        found[name] = len(value)
        for key in list(value)[:MOST_ITEMS] if depth else ():
            look_at(found, f"{name}[{key!r}]", value[key], depth - 1)
    elif isinstance(value, list | tuple | deque):
        found[name] = len(value)
        for number, item in enumerate(islice(value, MOST_ITEMS) if depth else ()):
            look_at(found, f"{name}[{number}]", item, depth - 1)
    elif is_compared_by_identity(value):
        found[name] = id(value)
    elif depth:
        for key, item in attributes_of(value)[:MOST_ITEMS]:
            look_at(found, f"{name}.{key}", item, depth - 1)


def is_compared_by_identity(value: Any) -> bool:
    """Functions, classes and modules are not looked into, nor is what is nobody's training state (a lock, a file)."""
    if isinstance(value, nn.Module | type | ModuleType) or callable(value):
        return True
    return type(value).__module__.split(".")[0] in OPAQUE


def _plain(value: Any) -> Any:
    """What can be compared as it is; None where there is more to look at."""
    if isinstance(value, PLAIN):
        return ("nan",) if value != value else (type(value).__name__, value)
    if isinstance(value, Tensor):
        return _Place(value)
    if isinstance(value, np.generic | np.ndarray):
        return (value.dtype, value.shape, value.tobytes()) if value.size <= MOST_ITEMS else (id(value), value.shape)
    if isinstance(value, GENERATORS):
        return mark_of(value)
    if isinstance(value, set | frozenset):
        return len(value), tuple(sorted(map(repr, islice(value, MOST_ITEMS))))
    if isinstance(value, bytearray | count):
        return repr(value)
    if isinstance(value, GeneratorType):
        frame = value.gi_frame
        return None if frame is None else (frame.f_lasti, repr(sorted(map(str, frame.f_locals.items())))[:1000])
    if isinstance(value, Iterator) and hasattr(value, "__length_hint__"):
        return ("items left", value.__length_hint__())
    return None


def what_changed(before: dict[str, Any], after: dict[str, Any]) -> str | None:
    """The name of the first thing that is not as it was."""
    for name, value in after.items():
        if name not in before or before[name] != value:
            return name
    return next((name for name in before if name not in after), None)


def hook_of_users(model: nn.Module) -> str | None:
    """Which module has a hook that is none of a library's, and which."""
    for name, module in model.named_modules():
        for kind in HOOKS:
            for hook in getattr(module, kind, {}).values():
                if not (getattr(hook, "__module__", "") or type(hook).__module__).startswith(TRUSTED):
                    called = getattr(hook, "__qualname__", type(hook).__name__)
                    return f"{name or type(module).__name__} has a hook ({called})"
    return None


def check_hooks(model: nn.Module) -> None:
    """Refuse hooks of users: they would be called once and never again."""
    if (hook := hook_of_users(model)) is not None:
        raise Refusal(f"{hook} that a graph would not call")
    for name, parameter in model.named_parameters():
        hooks = (parameter._backward_hooks, getattr(parameter, "_post_accumulate_grad_hooks", None))
        if any(hooks):
            raise Refusal(f"{name} has a hook on its gradient that a graph would not call")
