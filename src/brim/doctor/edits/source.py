"""A source file and changes of it: by the places of its syntax tree, so that everything else stays as it is."""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from functools import cached_property
from pathlib import Path

NO_NEWLINE = "\\ No newline at end of file\n"
Node = ast.stmt | ast.expr | ast.keyword


@dataclass(frozen=True)
class Edit:
    """Bytes from ``start`` to ``end`` of a source become ``text``."""

    start: int
    end: int
    text: str


class CannotEdit(Exception):
    """The code is not of the form that a change is known for: no diff is made."""


@dataclass(frozen=True)
class Source:
    """A file of the user's, as it is now."""

    path: Path
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def data(self) -> bytes:
        """The text as the bytes that the columns of a syntax tree count."""
        return self.text.encode()

    @cached_property
    def _starts(self) -> list[int]:
        starts = [0]
        for line in self.data.split(b"\n"):
            starts.append(starts[-1] + len(line) + 1)
        return starts

    @cached_property
    def unit(self) -> str:
        """One level of indentation."""
        return "\t" if "\n\t" in self.text else "    "

    def at(self, line: int, column: int) -> int:
        return self._starts[line - 1] + column

    def start(self, node: Node) -> int:
        return self.at(node.lineno, node.col_offset)

    def end(self, node: Node) -> int:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self.at(node.end_lineno, node.end_col_offset)

    def line_start(self, line: int) -> int:
        return self._starts[line - 1]

    def segment(self, node: Node) -> str:
        return self.data[self.start(node) : self.end(node)].decode()

    def indentation(self, node: ast.stmt) -> str:
        """What stands before a statement; it must have its lines for itself."""
        assert node.end_lineno is not None
        before = self.data[self.line_start(node.lineno) : self.start(node)].decode()
        after = self.data[self.end(node) : self._starts[node.end_lineno] - 1].decode().strip()
        if before.strip() or (after and not after.startswith("#")):
            raise CannotEdit
        return before

    def nodes(self, line: int | None = None) -> Iterator[ast.AST]:
        """All nodes, or those whose lines include one."""
        for node in ast.walk(self.tree):
            first, last = getattr(node, "lineno", None), getattr(node, "end_lineno", None)
            if line is None or (first is not None and last is not None and first <= line <= last):
                yield node

    def calls(self, line: int | None = None) -> list[ast.Call]:
        return [node for node in self.nodes(line) if isinstance(node, ast.Call)]

    def statement(self, line: int) -> ast.stmt:
        """The innermost statement on a line."""
        found = [node for node in self.nodes(line) if isinstance(node, ast.stmt)]
        if not found:
            raise CannotEdit
        return min(found, key=lambda node: self.end(node) - self.start(node))


def read_source(path: Path) -> Source | None:
    """A file as it is; None where it is no Python in UTF-8 with ordinary line ends."""
    try:
        data = path.read_bytes()
        source = Source(path, data.decode())
        ast.parse(source.text)
    except (OSError, UnicodeDecodeError, SyntaxError, ValueError):
        return None
    unusual = (
        any(mark in data.replace(b"\r\n", b"\n") for mark in (b"\r", b"\f", b"\x0b")) or data[:3] == b"\xef\xbb\xbf"
    )
    return None if unusual else source


def edited(source: Source, edits: Sequence[Edit]) -> str:
    """The text with all changes made; they must not overlap, and the result must be Python."""
    data, before = source.data, len(source.data) + 1
    for edit in sorted(set(edits), key=lambda edit: (edit.start, edit.end, edit.text), reverse=True):
        if edit.end > before:
            raise CannotEdit
        data = data[: edit.start] + edit.text.encode() + data[edit.end :]
        before = edit.start
    text = data.decode()
    if b"\r\n" in source.data:
        text = text.replace("\r\n", "\n").replace("\n", "\r\n")
    try:
        compile(text, str(source.path), "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        raise CannotEdit from error
    return text


def called(call: ast.AST) -> str:
    """The last name of what is called: ``DataLoader`` of ``data.DataLoader(...)``."""
    function = call.func if isinstance(call, ast.Call) else None
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def with_keyword(source: Source, call: ast.Call, name: str, value: str) -> Edit:
    """A keyword argument that has a value: the one that is there, or one more."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return Edit(source.start(keyword.value), source.end(keyword.value), value)
    if any(keyword.arg is None for keyword in call.keywords):  # **options may have it
        raise CannotEdit
    given: list[Node] = [*call.args, *call.keywords]
    close = source.end(call) - 1
    if not given:
        return Edit(close, close, f"{name}={value}")
    end = max(source.end(node) for node in given)
    if b")" in _without_comments(source.data[end:close]):  # the last one stands in parentheses of its own
        raise CannotEdit
    return Edit(end, end, f", {name}={value}")


def _without_comments(data: bytes) -> bytes:
    return b"\n".join(line.partition(b"#")[0] for line in data.split(b"\n"))


def after_imports(source: Source, line: str, module: str = "") -> Edit:
    """A line after the first imports of a file, or after those that a module is imported among."""
    body = source.tree.body
    first = next((place for place, node in enumerate(body) if _imports(node, module)), None)
    if first is None:
        raise CannotEdit
    others = (place for place in range(first, len(body)) if not _imports(body[place]))
    last = body[next(others, len(body)) - 1]
    source.indentation(last)
    place = source.line_start((last.end_lineno or 0) + 1)
    if source.data[place - 1 : place] != b"\n":  # the last line, without an end
        raise CannotEdit
    return Edit(place, place, f"{line}\n")


def _imports(node: ast.stmt, module: str = "") -> bool:
    """Whether a statement is an import, or one that gives a module its own name."""
    if not module:
        return isinstance(node, ast.Import | ast.ImportFrom)
    return isinstance(node, ast.Import) and any(alias.name == module and alias.asname is None for alias in node.names)


def import_of(source: Source, module: str) -> list[Edit]:
    """What is needed so that a module is there under its name."""
    if any(_imports(node, module) for node in source.tree.body):
        return []
    return [after_imports(source, f"import {module}")]


def diff_of(name: str, before: str, after: str) -> str:
    """What ``patch -p1`` and ``git apply`` take.

    >>> print(diff_of("train.py", "a = 1\\nb = 2\\n", "a = 1\\nb = 3\\n"), end="")
    --- a/train.py
    +++ b/train.py
    @@ -1,2 +1,2 @@
     a = 1
    -b = 2
    +b = 3
    """
    lines = unified_diff(_lines(before), _lines(after), f"a/{name}", f"b/{name}")
    return "".join(line if line.endswith("\n") else f"{line}\n{NO_NEWLINE}" for line in lines)


def _lines(text: str) -> list[str]:
    """Lines as ``patch`` counts them: Python's own splitting knows more line ends."""
    lines = [f"{line}\n" for line in text.split("\n")]
    lines[-1] = lines[-1][:-1]
    return [line for line in lines if line]
