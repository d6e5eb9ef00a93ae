"""Whether the figures in README and docs are those of the result files. Part of ``make check``.

    python benchmarks/figures.py            # compares them; ends with 1 where something is wrong
    python benchmarks/figures.py --older    # results that are older than the code they measure

``figures.toml`` says where each figure comes from. ``[values]`` names results and what follows from them, as Python
expressions; ``[code]`` says what each result measures. The other tables hold, for documents (names or patterns, with
commas between), texts that each must contain. In a text ``{expression:format}`` stands for a figure, computed from the
result files; a text without braces says that its numbers are no measurements (a setting, a limit, the size of a case).
What fails:

- a text that is not in its document: a figure was changed, or its result was;
- a number with a unit, a fraction or a large number in a table that no text covers: a figure without a source;
- a row of a table of README.zh-CN.md with other numbers than the same row of README.md;
- a page that is not what ``page.py`` makes of its template;
- a result file that ``results/README.md`` does not list, or ``[code]`` does not name.
"""

import argparse
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from figure_values import HELPERS, machine

ROOT = Path(__file__).resolve().parents[1]
FIELD = re.compile(r"\{([^{}]+?)(?::([^{}:\"]*))?\}")
# 1.07, 21,574,070, 85 %, 71x, 4 k, 17 s: a fraction, thousands, or a number with its unit.
UNIT = r"x| ?(?:%|倍|us|ms|s|毫秒|秒|GiB|MiB)| [kM]"
COUNT = r"\d+(?:,\d{3})*"
FIGURE = re.compile(rf"(?<![\w.,])(?:{COUNT}\.\d+(?:{UNIT})?|\d+(?:,\d{{3}})+|{COUNT}(?:{UNIT}))(?!\w)")
NUMBER = re.compile(rf"{COUNT}(?:\.\d+)?")
CODE = re.compile(r"`[^`\n]*`|\]\([^)]*\)")
# Documents that are made of their templates as a whole, by page.py.
GENERATED = {"docs/benchmarks.md": "benchmarks/page.template.md"}


def read_result(folder: Path) -> Callable[[str], Any]:
    def result(name: str) -> Any:
        return json.loads((folder / name).read_text())

    return result


def filled(text: str, values: dict[str, Any]) -> str:
    """The text with its figures.

    >>> filled("{x:.1f} times, {y:.0e}", {"x": 1.81, "y": 3e-7})
    '1.8 times, 3e-7'
    """
    return FIELD.sub(lambda field: format(eval(field[1], values), field[2] or "").replace("e-0", "e-"), text)


def places(text: str, document: str) -> Iterator[tuple[int, int]]:
    """Where a text is, whatever its line breaks."""
    pattern = r"\s+".join(re.escape(word) for word in text.split())
    return ((found.start(), found.end()) for found in re.finditer(pattern, document))


def table_figures(document: str) -> Iterator[tuple[int, int]]:
    """Figures in the rows of tables, names in backticks and addresses of links left out."""
    at = 0
    for line in document.splitlines(keepends=True):
        if line.startswith("|"):
            row = CODE.sub(lambda code: " " * len(code[0]), line)
            yield from ((at + found.start(), at + found.end()) for found in FIGURE.finditer(row))
        at += len(line)


def table_rows(document: str) -> list[list[str]]:
    """The numbers of each row of a table, in order of size: languages put them in another order."""
    rows = [CODE.sub("", line) for line in document.splitlines() if line.startswith("|")]
    return [sorted(NUMBER.findall(row)) for row in rows]


def check_document(name: str, document: str, texts: list[str], values: dict[str, Any]) -> Iterator[str]:
    covered: list[tuple[int, int]] = []
    for text in texts:
        expected = filled(text, values)
        found = list(places(expected, document))
        if not found:
            yield f"{name}: not there, though the results say so: {expected}"
        covered += found
    for start, end in table_figures(document):
        if not any(low <= start and end <= high for low, high in covered):
            line = document.count("\n", 0, start) + 1
            yield f"{name}:{line}: {document[start:end]!r} has no source in benchmarks/figures.toml"


def check_translation(english: str, chinese: str) -> Iterator[str]:
    ours, theirs = table_rows(english), table_rows(chinese)
    if len(ours) != len(theirs):
        yield f"the tables of README.md have {len(ours)} rows, those of README.zh-CN.md {len(theirs)}"
    for one, other in zip(ours, theirs, strict=False):
        if one != other:
            yield f"a row of README.md has {', '.join(one)}, but in README.zh-CN.md {', '.join(other)}"


def check_listed(results: Path, code: dict[str, str]) -> Iterator[str]:
    listed = (results / "README.md").read_text()
    for file in sorted(results.glob("*.json*")):
        if f"`{file.name}`" not in listed:
            yield f"benchmarks/results/README.md does not list {file.name}"
        if file.name not in code:
            yield f"figures.toml does not say which code {file.name} measures"


def older(root: Path) -> Iterator[str]:
    """Results whose code has changed since they were made, by git's history."""

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True).stdout.strip()

    def made_at(file: Path) -> str:
        """The commit that the result names, or else the one that first held what is in it."""
        if named := re.search(r'"commit": "(\w+)', file.read_text()):
            return named[1]
        return git("log", "--reverse", "--format=%h", f"--find-object={git('hash-object', str(file))}").split("\n")[0]

    def is_known(commit: str) -> bool:
        """Whether this clone has it: a shallow one, or one after a rebase, may not."""
        asked = subprocess.run(["git", "cat-file", "-e", f"{commit}^{{commit}}"], cwd=root, capture_output=True)
        return asked.returncode == 0

    for name, code in read_bound(root)["code"].items():
        made = made_at(root / "benchmarks" / "results" / name)
        if made and not is_known(made):
            yield f"{name}: of {made}, a commit that this clone does not have, so what changed since is not known"
            continue
        changes = git("rev-list", "--count", f"{made}..HEAD", "--", *code.split()) if made else "0"
        if int(changes):
            yield f"{name}: of {made}; commits to {code} since: {changes}"


def read_bound(root: Path) -> dict[str, Any]:
    return tomllib.loads((root / "benchmarks" / "figures.toml").read_text())


def read_values(root: Path) -> dict[str, Any]:
    """What expressions may name: helpers, ``result(FILE)``, ``about(FILE)``, and what ``[values]`` defines."""
    values: dict[str, Any] = {helper.__name__: helper for helper in HELPERS}
    values["result"] = result = read_result(root / "benchmarks" / "results")
    values["about"] = lambda name: machine(name, result(name))
    for name, expression in read_bound(root)["values"].items():
        values[name] = eval(expression, values)
    return values


def generated(root: Path, name: str, values: dict[str, Any]) -> str:
    """A page as its template and the results have it."""
    return filled((root / GENERATED[name]).read_text(), values)


def problems(root: Path) -> list[str]:
    """What is wrong with the figures of a repository; nothing, if all is well."""
    bound = read_bound(root)
    values = read_values(root)
    code = bound.pop("code")
    del bound["values"]
    found: list[str] = []
    for path in [*sorted(root.glob("README*.md")), *sorted((root / "docs").glob("*.md"))]:
        name = path.relative_to(root).as_posix()
        if name in GENERATED:
            if path.read_text() != generated(root, name, values):
                found.append(f"{name} is not what the results make of it: run python benchmarks/page.py")
            continue
        texts = [
            text
            for names, of in bound.items()
            if any(fnmatch(name, pattern) for pattern in names.split(", "))
            for text in of["texts"]
        ]
        found += check_document(name, path.read_text(), texts, values)
    found += check_translation((root / "README.md").read_text(), (root / "README.zh-CN.md").read_text())
    return [*found, *check_listed(root / "benchmarks" / "results", code)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=ROOT, help="of the repository")
    parser.add_argument("--older", action="store_true", help="list results that are older than their code")
    arguments = parser.parse_args()
    if arguments.older:
        print("\n".join(older(arguments.root)))
        return
    found = problems(arguments.root)
    print("\n".join(found) or "the figures of README and docs are those of benchmarks/results")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
