"""What a function's code refers to outside itself, and whose code that is."""

import dis
import importlib
import importlib.metadata
import os
import sys
import types
from functools import lru_cache
from pathlib import Path
from typing import Any

LOADS = frozenset(("LOAD_GLOBAL", "LOAD_NAME"))
ATTRIBUTES = frozenset(("LOAD_ATTR", "LOAD_METHOD", "IMPORT_FROM"))


def is_own(module: str) -> bool:
    """Whether a module is the user's: neither Python's nor installed, so its code changes without a version."""
    package = module.partition(".")[0]
    home = sys.modules.get(module) or sys.modules.get(package)
    file = getattr(home, "__file__", None)
    if file is None:
        return module == "__main__" or (home is None and package not in sys.stdlib_module_names)
    if {"site-packages", "dist-packages"} & set(Path(file).parts):
        return False
    # By its place and not by its name: a module of the user's may be called token or queue.
    return Path(os.__file__).parent not in Path(file).parents


def version_of(module: str) -> str:
    """The version of the package that a module belongs to; empty for Python's own, whose version is Python's."""
    package = module.partition(".")[0]
    if not package or package in sys.stdlib_module_names:
        return ""
    version = getattr(sys.modules.get(package), "__version__", None)
    if not isinstance(version, str):
        try:
            version = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            version = ""
    return version


@lru_cache(maxsize=4096)  # asked of the same methods at every look at a data set
def references(code: types.CodeType) -> frozenset[tuple[str, ...]]:
    """Global names and imports in ``code`` and the functions inside it, each with the attributes asked of it."""
    found: set[tuple[str, ...]] = set()
    chain: list[str] = []
    steps = [step for step in dis.get_instructions(code) if step.opname not in ("CACHE", "PRECALL", "EXTENDED_ARG")]
    for number, step in enumerate(steps):
        if step.opname in ATTRIBUTES and chain:
            if step.opname == "IMPORT_FROM":
                found.add((chain[0], str(step.argval)))
            else:
                chain.append(str(step.argval))
            continue
        if chain and not step.opname.startswith("STORE_"):  # several names can be taken from one import
            found.add(tuple(chain))
            chain = []
        if step.opname in LOADS:
            chain = [str(step.argval)]
        elif step.opname == "IMPORT_NAME":
            level = steps[number - 2].argval  # the dots of a relative import
            chain = [f"import {'.' * (level if isinstance(level, int) else 0)}{step.argval}"]
    found.update({tuple(chain)} if chain else ())
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= references(constant)
    return frozenset(found)


def imported(name: str, package: str | None) -> Any:
    """The module that the code will import when it runs: imported now, or the hash would change once it has run."""
    try:
        return importlib.import_module(name, package)
    except Exception:  # as the code itself may expect: an import of something optional
        return None


def content_of(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return "a variable without a value"


def follow(found: Any, attributes: list[str]) -> Any:
    """Of the user's own modules, what is asked of them; anything else as a whole, for its attributes are its own."""
    while isinstance(found, types.ModuleType) and attributes and is_own(found.__name__):
        name = attributes[0]
        inside = vars(found)[name] if name in vars(found) else imported(f"{found.__name__}.{name}", None)
        if inside is None:
            break
        found, attributes = inside, attributes[1:]
    return found
