"""Code blocks of documents: what language they are in, and whether they can be run here.

A block that cannot be run within a second or so on a CPU says why, in a comment before it that no reader sees:
``<!-- not run: needs a GPU -->``.
"""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BLOCK = re.compile(
    r"(?:^<!-- not run: (?P<why>[^\n]*) -->\n+)?^```(?P<language>[^\n]*)\n(?P<code>.*?)^```$", re.M | re.S
)
COMMENT = re.compile(r"(?:^|\s)#.*")


@dataclass(frozen=True)
class CodeBlock:
    """A block, the line it begins at, and why it is not run; None where it is."""

    language: str
    code: str
    line: int
    not_run: str | None


def code_blocks(document: Path) -> list[CodeBlock]:
    text = document.read_text()
    found = BLOCK.finditer(text)
    return [
        CodeBlock(one["language"], one["code"], text.count("\n", 0, one.start("code")) + 1, one["why"]) for one in found
    ]


def without_comments(code: str) -> str:
    """What is left for a machine to read: the same in all languages."""
    return re.sub(r"\s*#.*", "", code)


def commands(shell: str) -> Iterator[list[str]]:
    """The command lines of a shell block as words: without comments and redirections, continued lines joined."""
    for line in shell.replace("\\\n", " ").splitlines():
        words = shlex.split(COMMENT.sub("", line)) if "'" not in line and '"' not in line else shlex.split(line, True)
        if words:
            yield words[: words.index(">")] if ">" in words else words


def brim_arguments(words: list[str]) -> list[str] | None:
    """The arguments of ``brim``, also where a launcher starts it; None for other programs."""
    if words[0] == "brim":
        return words[1:]
    started = [at for at in range(len(words) - 1) if words[at : at + 2] == ["-m", "brim"]]
    return words[started[0] + 2 :] if started else None


def unknown_options(command: Any, arguments: list[str]) -> list[str]:
    """Options that a command of typer's does not have; the name of a command that is not there counts as one.

    What stands after ``--`` belongs to somebody else.
    """
    mine = arguments[: arguments.index("--")] if "--" in arguments else arguments
    while getattr(command, "commands", None):
        named = next((word for word in mine if not word.startswith("-")), None)
        if named in command.commands:
            mine = [word for word in mine if word != named]
            command = command.commands[named]
        elif named is None or type(command).__name__ != "TyperGroup":
            break  # a group with arguments of its own: brim runs FOLDER
        else:
            return [named]
    known = {
        option for each in _all_commands(command) for one in each.params for option in (*one.opts, *one.secondary_opts)
    }
    given = (word.partition("=")[0] for word in mine if word.startswith("-"))
    return [option for option in given if option not in {*known, "--help"}]


def _all_commands(command: Any) -> list[Any]:
    return [command, *getattr(command, "commands", {}).values()]
