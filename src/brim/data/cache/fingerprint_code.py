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


class Pen(Protocol):
    """Writes things into a digest."""

    def at(self, place: str) -> AbstractContextManager[None]: ...

    def raw(self, kind: str, content: Any) -> None: ...

    def text(self, text: str) -> None: ...

    def value(self, thing: Any) -> None: ...

    def named(self, thing: Any) -> None: ...


def write_callable(pen: Pen, thing: Any) -> bool:
    """Whether it was something that can be called, or stands in a class for something computed."""
    if isinstance(thing, types.FunctionType):
        write_function(pen, thing)
    elif isinstance(thing, types.MethodType):
        pen.text("method")
        pen.value(thing.__func__)
        pen.value(thing.__self__)
    elif isinstance(thing, types.BuiltinFunctionType):
        pen.text(f"built in {thing.__module__}.{thing.__qualname__} {version_of(thing.__module__ or '')}")
        if not isinstance(thing.__self__, types.ModuleType | None):
            pen.value(thing.__self__)
    elif isinstance(thing, functools.partial):
        pen.text("partial")
        pen.value(thing.func)
        pen.value(len(thing.args))
        for name, value in (*enumerate(thing.args), *thing.keywords.items()):
            with pen.at(f"its argument {name}"):
                pen.value(name)
                pen.named(value)
    elif isinstance(thing, staticmethod | classmethod | functools._lru_cache_wrapper):
        pen.text(type(thing).__name__)
        pen.value(thing.__wrapped__)
    elif isinstance(thing, functools.cached_property):
        pen.text("cached property")
        pen.value(thing.func)
    elif isinstance(thing, property):
        pen.text("property")
        pen.value([thing.fget, thing.fset, thing.fdel])
    elif isinstance(thing, types.GetSetDescriptorType | types.MemberDescriptorType):
        pen.text(f"slot {thing.__name__}")
    elif isinstance(thing, types.WrapperDescriptorType | types.MethodDescriptorType | types.ClassMethodDescriptorType):
        pen.text(f"built in {thing.__objclass__.__qualname__}.{thing.__name__}")
    else:
        return False
    return True


def write_function(pen: Pen, function: types.FunctionType) -> None:
    home = str(function.__globals__.get("__name__"))
    with pen.at(f"function {function.__qualname__}"):
        if is_own(home):
            write_code(pen, function.__code__)
            _write_globals(pen, function)
        else:
            pen.text(f"{home}.{function.__qualname__} {version_of(home)}")
        with pen.at("its defaults"):
            pen.value([function.__defaults__, function.__kwdefaults__])
            for value in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
                pen.named(value)
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            with pen.at(f"its variable {name}"):
                pen.named(content_of(cell))
        pen.value(vars(function))


def write_code(pen: Pen, code: types.CodeType) -> None:
    numbers = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    pen.text(f"code {numbers} {names}")
    pen.raw("bytecode", code.co_code)
    pen.raw("exceptions", code.co_exceptiontable)
    for constant in code.co_consts:
        pen.value(constant)


def _write_globals(pen: Pen, function: types.FunctionType) -> None:
    """What the code refers to by name, in its module or by importing it."""
    outside = function.__globals__
    for first, *rest in sorted(references(function.__code__)):
        if first.startswith("import "):
            found = imported(first.removeprefix("import "), outside.get("__package__"))
        elif first in outside:
            found = outside[first]
        else:
            continue  # a built-in, or a name that is not there yet
        with pen.at(f"its global {first}"):
            pen.text(f"{first} {rest}")
            pen.named(follow(found, rest))


def write_class(pen: Pen, kind: type) -> None:
    for base in kind.__mro__:
        pen.text(f"class {base.__module__}.{base.__qualname__}")
        if not is_own(base.__module__):
            pen.text(version_of(base.__module__))
            continue
        with pen.at(f"class {base.__qualname__}"):
            for name, member in sorted(vars(base).items()):
                if name not in NOT_CODE:
                    with pen.at(name):
                        pen.text(name)
                        pen.value(member)


def write_module(pen: Pen, module: types.ModuleType) -> None:
    pen.text(f"module {module.__name__} {version_of(module.__name__)}")
    file = getattr(module, "__file__", None)
    if is_own(module.__name__) and file is not None:
        pen.raw("source", Path(file).read_bytes())
