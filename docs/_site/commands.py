"""The page of the command line, made of the commands themselves, and that of all public names."""

import inspect
import re
from collections.abc import Iterator
from typing import Any

import typer
from mkdocs.structure.files import File, Files

import brim
from brim.cli.main import app

COMMANDS = "reference/command-line.md"
NAMES = "reference/index.md"


def on_files(files: Files, config: Any) -> Files:
    for uri, text in ((COMMANDS, commands_page()), (NAMES, names_page(_pages(files)))):
        files.append(File.generated(config, uri, content=text))
    return files


def commands_page() -> str:
    """Every command with its arguments and options, as ``--help`` gives them."""
    head = "# The command line\n\n`brim --install-completion` lets the shell complete what is below.\n"
    return head + "".join(_shown("brim", typer.main.get_command(app)))


def names_page(pages: dict[str, str]) -> str:
    """All public names, each with the first sentence of its docstring."""
    rows = [
        f"| [`brim.{name}`]({pages.get(name, '')}#brim.{name}) | {_first_sentence(name)} |" for name in brim.__all__
    ]
    rest = "".join(f"\n::: brim.{name}\n" for name in brim.__all__ if name not in pages)  # which have no page yet
    head = "# Public names\n\nWhat is not named here may change in any version ([which changes are announced]"
    return f"{head}(../../CONTRIBUTING.md#deprecations)).\n\n| name | |\n|---|---|\n" + "\n".join(rows) + "\n" + rest


def _pages(files: Files) -> dict[str, str]:
    """On which page of the reference each name is."""
    pages = [file for file in files if file.src_uri.startswith("reference/")]
    named = (
        (name, file.name + ".md")
        for file in pages
        for name in re.findall(r"^::: brim\.(\w+)$", file.content_string, re.M)
    )
    return dict(named)


def _first_sentence(name: str) -> str:
    first = (inspect.getdoc(getattr(brim, name)) or "").partition("\n\n")[0]
    text = " ".join(first.split())
    return re.sub(r":\w+:`([^`]*)`", r"`\1`", re.split(r"(?<=[.:]) ", text)[0]).rstrip(":").replace("|", "\\|")


def _shown(name: str, command: Any, depth: int = 2) -> Iterator[str]:
    if name != "brim":
        yield f"\n{'#' * depth} {name}\n\n{_text(command.help)}\n"
        yield from _parameters(command)
    for each in getattr(command, "commands", {}).values():
        yield from _shown(f"{name} {each.name}", each, depth + (name != "brim"))


def _parameters(command: Any) -> Iterator[str]:
    rows = [record for parameter in command.params if (record := _row(parameter))]
    if rows:
        yield "\n| | |\n|---|---|\n" + "\n".join(rows) + "\n"


def _row(parameter: Any) -> str | None:
    if getattr(parameter, "hidden", False) or parameter.name == "help":
        return None
    value = parameter.metavar or (parameter.name.upper() if parameter.param_type_name == "argument" else "")
    shown = [", ".join(parameter.opts)] if parameter.param_type_name == "option" else []
    name = " ".join([*shown, value]).strip()
    return f"| `{name}` | {_text(parameter.help)} |"


def _text(text: str | None) -> str:
    return " ".join((text or "").replace("\f", " ").split()).replace("|", "\\|").replace("<", "&lt;")
