"""Code in a fingerprint: bytecode with everything it refers to, installed packages by their version."""

import functools
import types
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from brim.data.probing.code_references import content_of, follow, imported, is_own, references, version_of

# Of a class: what says nothing about what it does, or is made from the rest.
NOT_CODE = {
    "__dict__", "__weakref__", "__doc__", "__module__", "__qualname__", "__annotations__", "__annotate__",
    "__annotate_func__", "__annotations_cache__", "__firstlineno__", "__static_attributes__",
    "__abstractmethods__", "_abc_impl", "__orig_bases__", "__parameters__", "__dataclass_fields__",
    "__dataclass_params__", "__match_args__", "__slotnames__",
}  # fmt: skip


class Hasher(Protocol):
    """Writes things into a digest."""

    def at(self, place: str) -> AbstractContextManager[None]: ...

    def raw(self, kind: str, content: Any) -> None: ...

    def text(self, text: str) -> None: ...

    def value(self, thing: Any) -> None: ...

    def named(self, thing: Any) -> None: ...


def write_callable(hasher: Hasher, thing: Any) -> bool:
    """Whether it was something that can be called, or stands in a class for something computed."""
    if isinstance(thing, types.FunctionType):
        write_function(hasher, thing)
    elif isinstance(thing, types.MethodType):
        hasher.text("method")
        hasher.value(thing.__func__)
        hasher.value(thing.__self__)
    elif isinstance(thing, types.BuiltinFunctionType):
        hasher.text(f"built in {thing.__module__}.{thing.__qualname__} {version_of(thing.__module__ or '')}")
        if not isinstance(thing.__self__, types.ModuleType | None):
            hasher.value(thing.__self__)
    elif isinstance(thing, functools.partial):
        hasher.text("partial")
        hasher.value(thing.func)
        hasher.value(len(thing.args))
        for name, value in (*enumerate(thing.args), *thing.keywords.items()):
            with hasher.at(f"its argument {name}"):
                hasher.value(name)
                hasher.named(value)
    elif isinstance(thing, staticmethod | classmethod | functools._lru_cache_wrapper):
        hasher.text(type(thing).__name__)
        hasher.value(thing.__wrapped__)
    elif isinstance(thing, functools.cached_property):
        hasher.text("cached property")
        hasher.value(thing.func)
    elif isinstance(thing, property):
        hasher.text("property")
        hasher.value([thing.fget, thing.fset, thing.fdel])
    elif isinstance(thing, types.GetSetDescriptorType | types.MemberDescriptorType):
        hasher.text(f"slot {thing.__name__}")
    elif isinstance(thing, types.WrapperDescriptorType | types.MethodDescriptorType | types.ClassMethodDescriptorType):
        hasher.text(f"built in {thing.__objclass__.__qualname__}.{thing.__name__}")
    else:
        return False
    return True


def write_function(hasher: Hasher, function: types.FunctionType) -> None:
    home = str(function.__globals__.get("__name__"))
    with hasher.at(f"function {function.__qualname__}"):
        if is_own(home):
            write_code(hasher, function.__code__)
            _write_globals(hasher, function)
        else:
            hasher.text(f"{home}.{function.__qualname__} {version_of(home)}")
        with hasher.at("its defaults"):
            hasher.value([function.__defaults__, function.__kwdefaults__])
            for value in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
                hasher.named(value)
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            with hasher.at(f"its variable {name}"):
                hasher.named(content_of(cell))
        hasher.value(vars(function))


def write_code(hasher: Hasher, code: types.CodeType) -> None:
    numbers = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    hasher.text(f"code {numbers} {names}")
    hasher.raw("bytecode", code.co_code)
    hasher.raw("exceptions", code.co_exceptiontable)
    for constant in code.co_consts:
        hasher.value(constant)


def _write_globals(hasher: Hasher, function: types.FunctionType) -> None:
    """What the code refers to by name, in its module or by importing it."""
    outside = function.__globals__
    for first, *rest in sorted(references(function.__code__)):
        if first.startswith("import "):
            found = imported(first.removeprefix("import "), outside.get("__package__"))
        elif first in outside:
            found = outside[first]
        else:
            continue  # a built-in, or a name that is not there yet
        with hasher.at(f"its global {first}"):
            hasher.text(f"{first} {rest}")
            hasher.named(follow(found, rest))


def write_class(hasher: Hasher, kind: type) -> None:
    for base in kind.__mro__:
        hasher.text(f"class {base.__module__}.{base.__qualname__}")
        if not is_own(base.__module__):
            hasher.text(version_of(base.__module__))
            continue
        with hasher.at(f"class {base.__qualname__}"):
            for name, member in sorted(vars(base).items()):
                if name not in NOT_CODE:
                    with hasher.at(name):
                        hasher.text(name)
                        hasher.value(member)


def write_module(hasher: Hasher, module: types.ModuleType) -> None:
    hasher.text(f"module {module.__name__} {version_of(module.__name__)}")
    file = getattr(module, "__file__", None)
    if is_own(module.__name__) and file is not None:
        hasher.raw("source", Path(file).read_bytes())
