"""Whose code a function, class or module is, and what code names outside of itself."""

import sys
import sysconfig
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

LIBRARIES = ("torch", "numpy", "transformers", "peft", "brim", "builtins", "lightning", "accelerate", "torchvision",
             "pytorch_lightning")  # fmt: skip
INSTALLED = (sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))  # asked for every object, and slow to find


def is_users(thing: Any) -> bool:
    """Whether a class, function or module is the user's own code, not Python's or a library's."""
    return _is_of_users(thing.__name__ if isinstance(thing, ModuleType) else getattr(thing, "__module__", None))


def is_users_code(function: FunctionType) -> bool:
    """Whether the code of a function is the user's: what a library wraps around one goes by the name of that."""
    return _is_of_users(function.__globals__.get("__name__"))


def _is_of_users(module: Any) -> bool:
    name = str(module or "")
    package = name.split(".")[0]
    if package == "__main__":
        return True
    if package in LIBRARIES or package in sys.stdlib_module_names:
        return False
    file = getattr(sys.modules.get(str(module)), "__file__", None)
    return file is None or not str(file).startswith(INSTALLED)


def package_of(kind: Any) -> str:
    """The outermost package that a class or function comes from."""
    return str(getattr(kind, "__module__", None) or "").split(".")[0]


def names_in(code: CodeType) -> Iterator[str]:
    """The names of globals and attributes in a piece of code and in the functions within it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from names_in(constant)


def closure_of(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """The variables that a function closes over, but for those without a value yet."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        try:
            yield name, cell.cell_contents
        except ValueError:
            continue


def users_slots(kind: type) -> Iterator[str]:
    """The slots that the user's classes give to objects of a class, by the names that they are stored under."""
    for base in kind.__mro__:
        slots = base.__dict__.get("__slots__", ()) if is_users(base) else ()
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__"):
                # What begins with two underscores is stored under a name with that of the class.
                yield f"_{base.__name__.lstrip('_')}{name}" if name.startswith("__") else name
