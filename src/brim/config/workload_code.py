"""The code that ``workload:`` names, and which code it may name: files under the working directory, and packages."""

import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any

from brim.engine.components.settings import shorten
from brim.errors import ConfigError, a_type
from brim.user_line import users_errors

BUILD = "build"  # the function that is meant where a file alone is named
NAME = re.compile(r"[^\W\d]\w*")
HOW = "write it as train.py:build or my_project.train:build"


def names_code(workload: object) -> bool:
    """Whether this is the name of a user's code, well written or not, rather than of a workload of brim's.

    >>> names_code("train.py:build"), names_code("my_project.train:build"), names_code("recommender")
    (True, True, False)
    """
    return isinstance(workload, str) and (":" in workload or workload.endswith(".py"))


@dataclass(frozen=True)
class WorkloadCode:
    """A function of the user's, by its name. Nothing is imported until :meth:`load` is called."""

    place: str  # a file relative to the working directory, or a module
    function: str

    @classmethod
    def parse(cls, written: str) -> "WorkloadCode":
        """Read the name, and refuse what lies elsewhere as far as the name alone tells.

        >>> WorkloadCode.parse("train.py")
        WorkloadCode(place='train.py', function='build')
        """
        place, _, function = written.rpartition(":") if ":" in written else (written, ":", BUILD)
        if not NAME.fullmatch(function):
            raise ConfigError(f"workload={shorten(written)} names no function; {HOW}")
        code = cls(place, function)
        if code.is_file:
            code._check_path()
        else:
            code._check_module()
        return code

    @property
    def is_file(self) -> bool:
        return self.place.endswith(".py")

    def __str__(self) -> str:
        return f"{self.place}:{self.function}"

    def load(self) -> Callable[..., Any]:
        """Import it. This runs the code, so only a configuration that the user named may come here."""
        here = str(Path.cwd())
        if here not in sys.path:
            sys.path.insert(0, here)  # for good: the function may import its neighbours when it is called
        with users_errors(f"importing {self.place}"):
            try:
                module = self._import_file() if self.is_file else self._import_module()
            except SystemExit as error:
                raise ConfigError(
                    f"importing {self.place} ended with sys.exit({error.code!r}); put what it does as a script under "
                    "if __name__ == '__main__':"
                ) from error
        return self._function_of(module)

    def _check_path(self) -> None:
        path = PurePosixPath(self.place.replace("\\", "/"))
        if path.is_absolute() or ".." in path.parts or re.match(r"[A-Za-z]:", self.place) or "\0" in self.place:
            raise ConfigError(
                f"workload={shorten(str(self))}: a file is named by its path below the working directory, without '..'"
            )

    def _check_module(self) -> None:
        parts = self.place.split(".")
        if not all(NAME.fullmatch(part) for part in parts):
            raise ConfigError(f"workload={shorten(str(self))} names no module; {HOW}")
        if parts[0] in sys.stdlib_module_names:
            raise ConfigError(f"workload={shorten(str(self))}: {parts[0]} is Python's own and builds no model; {HOW}")

    def _import_file(self) -> ModuleType:
        path = self._file()
        if str(path.parent) not in sys.path:
            sys.path.insert(0, str(path.parent))  # its neighbours, as for a script
        name = self._module_name(path)
        known = sys.modules.get(name)
        if known is not None:
            return known
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None  # it is a file that ends in .py
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module  # before it runs, as import does: its classes are looked up there
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
        return module

    def _file(self) -> Path:
        try:
            path, root = (Path.cwd() / self.place).resolve(), Path.cwd().resolve()
            is_there = path.is_file()
        except (OSError, ValueError, RuntimeError) as error:  # a name that no file system takes, links in a ring
            raise ConfigError(f"workload={shorten(str(self))} cannot be read: {error}") from error
        if not path.is_relative_to(root):
            raise ConfigError(f"workload={shorten(str(self))}: the file lies outside the working directory {root}")
        if not is_there:
            raise ConfigError(
                f"workload={shorten(str(self))}: there is no file {self.place} in {root}; files are named from the "
                "working directory, wherever the configuration lies"
            )
        return path

    @staticmethod
    def _module_name(path: Path) -> str:
        """Its own name, by which processes of loaders find it too; another where that is taken."""
        known = sys.modules.get(path.stem)
        taken = known is not None and getattr(known, "__file__", None) != str(path)
        return f"workload_{path.stem}" if taken or path.stem in sys.stdlib_module_names else path.stem

    def _import_module(self) -> ModuleType:
        parts = self.place.split(".")
        is_local = False
        for count in range(1, len(parts) + 1):
            name = ".".join(parts[:count])
            spec = importlib.util.find_spec(name)  # imports what is above it, which was looked at before
            if spec is None:
                raise ConfigError(f"there is no module {name!r}; {self} is looked up from {Path.cwd()}")
            is_local = is_local or (count == 1 and _lies_in(Path.cwd(), spec))
            if is_local:
                self._refuse_links(spec)
        return importlib.import_module(self.place)

    def _refuse_links(self, spec: ModuleSpec) -> None:
        root = Path.cwd().resolve()
        for location in _locations(spec):
            if not location.resolve().is_relative_to(root):
                raise ConfigError(
                    f"workload={shorten(str(self))}: {location} is a link out of the working directory {root}"
                )

    def _function_of(self, module: ModuleType) -> Callable[..., Any]:
        found = getattr(module, self.function, None)
        if not inspect.isfunction(found):
            what = f"is {a_type(found)}" if hasattr(module, self.function) else "is not there"
            raise ConfigError(f"{self}: {self.function!r} {what}; name a function that returns the model and its data")
        if found.__module__.partition(".")[0] in sys.stdlib_module_names - {"__main__"}:
            raise ConfigError(f"{self}: {self.function!r} is Python's own {found.__module__}; name a function of yours")
        return found


def _locations(spec: ModuleSpec) -> list[Path]:
    folders = [Path(folder) for folder in spec.submodule_search_locations or ()]
    return [*folders, Path(spec.origin)] if spec.has_location and spec.origin else folders


def _lies_in(folder: Path, spec: ModuleSpec) -> bool:
    """Whether a module was found in this very folder, not in a package folder below it."""
    names = {folder / spec.name, folder / f"{spec.name}.py"}
    return any(location in names for location in _locations(spec))
