"""Docstrings as they stand in the source, turned into what mkdocstrings can show."""

import re
from typing import Any

import griffe

ROLE = re.compile(r":(?:class|func|meth|mod|attr|data|exc):`~?([\w.]+)`")
EXAMPLE = re.compile(r"(?:^|(?<=\n))(>>> .*?)(?=\n\n|\Z)", re.DOTALL)
SECTION = re.compile(r"(?<=Args:\n).*?(?=\n\n|\Z)", re.DOTALL)
SHARED = re.compile(r"^    (\w+(?:,\s+\w+)+): ((?:.|\n        )*)", re.MULTILINE)


class Docstrings(griffe.Extension):
    """Roles become links or code, examples become code blocks, arguments that share a line get one each."""

    def on_object(self, *, obj: griffe.Object, **rest: Any) -> None:
        if obj.docstring is None:
            return
        text = SECTION.sub(lambda section: SHARED.sub(_each, section[0]), obj.docstring.value)
        text = ROLE.sub(_linked, text)
        obj.docstring.value = EXAMPLE.sub(_fenced, text)

    def on_class(self, *, cls: griffe.Class, **rest: Any) -> None:
        """A class that is made by ``__new__`` takes the arguments of that."""
        made_by = cls.members.get("__new__")
        if isinstance(made_by, griffe.Function) and "__init__" not in cls.members:
            _, *taken = made_by.parameters
            own = griffe.Parameter("self", kind=griffe.ParameterKind.positional_or_keyword)
            cls.set_member("__init__", griffe.Function("__init__", parameters=griffe.Parameters(own, *taken)))

    def on_package(self, *, pkg: griffe.Module, **rest: Any) -> None:
        """A function with the name of its module is the function: ``brim.forecast`` of ``memory/forecast.py``."""
        for name, member in list(pkg.members.items()):
            if isinstance(member, griffe.Alias) and _is_module(pkg, member.target_path):
                pkg.set_member(name, griffe.Alias(name, f"{member.target_path}.{name}"))


def _is_module(package: griffe.Module, path: str) -> bool:
    try:
        return isinstance(package[path.removeprefix(f"{package.name}.")], griffe.Module)
    except KeyError:
        return False


def _each(shared: re.Match[str]) -> str:
    return "\n".join(f"    {name.strip()}: {shared[2]}" for name in shared[1].split(","))


def _linked(role: re.Match[str]) -> str:
    is_public = re.fullmatch(r"brim\.\w+", role[1])  # and so has a place in the reference
    return f"[`{role[1]}`][{role[1]}]" if is_public else f"`{role[1]}`"


def _fenced(example: re.Match[str]) -> str:
    return "```pycon\n" + re.sub(r"\s*# doctest:.*", "", example[1]) + "\n```"
