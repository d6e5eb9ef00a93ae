"""Lines of the user's code: which one a stack comes from, and what a statement of a training loop is for."""

import ast
import linecache
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CodeType, FrameType

from brim.user_line import is_users_own

Place = tuple[str, int]  # file and line


def stack(frame: FrameType | None) -> Iterator[FrameType]:
    """A frame and those that called it."""
    while frame is not None:
        yield frame
        frame = frame.f_back


@cache
def is_own(file: str) -> bool:
    """Whether a file is the user's, which is asked thousands of times a second."""
    return is_users_own(file)


def users_place(frame: FrameType | None = None) -> Place | None:
    """The innermost line of the user's code that runs, or that of a frame."""
    found = next((f for f in stack(frame or sys._getframe(1)) if is_own(f.f_code.co_filename)), None)
    return None if found is None else (found.f_code.co_filename, found.f_lineno)


def shown(place: Place | None) -> str:
    """``train.py:31``; the folder is left out."""
    return "" if place is None else f"{Path(place[0]).name}:{place[1]}"


def text_of(place: Place | None) -> str:
    """The source of a line."""
    return "" if place is None else linecache.getline(*place).strip()


@dataclass(frozen=True)
class LoopLines:
    """The lines of one function that contains a training loop, by what they are for."""

    heads: frozenset[int]  # of the loops around the step: running on one means asking for a batch
    data: frozenset[int]  # make what goes into the model
    loss: frozenset[int]  # lead from there to the loss


EMPTY = LoopLines(frozenset(), frozenset(), frozenset())


def loop_lines(code: CodeType, step_line: int, forward_line: int | None) -> LoopLines:
    """What the lines of the function do that the step was seen in at ``step_line``.

    ``forward_line`` is where it was when the model was called. Names are followed backwards from there and from the
    call of ``backward``: statements that set them ahead of the model's line make data, later ones the loss.
    """
    body = _function_of(code)
    if body is None:
        return EMPTY
    loops = [
        node
        for node in ast.walk(body)
        if isinstance(node, ast.For | ast.While | ast.AsyncFor) and _contains(node, step_line)
    ]
    heads = {line for loop in loops if isinstance(loop, ast.For) for line in _lines(loop.iter, loop.target)}
    if not loops:
        return LoopLines(frozenset(heads), frozenset(), frozenset())
    inner = min(loops, key=lambda loop: (loop.end_lineno or 0) - loop.lineno)
    statements = [node for node in ast.walk(inner) if isinstance(node, ast.Assign | ast.AnnAssign) and node.value]
    wanted = _names_into_loss(inner, statements, forward_line)
    data: set[int] = set()
    loss: set[int] = set()
    for statement in statements:
        if not _targets(statement) & wanted:
            continue
        is_ahead = forward_line is not None and (statement.end_lineno or 0) < forward_line
        (data if is_ahead else loss).update(_lines(statement))
    return LoopLines(frozenset(heads), frozenset(data), frozenset(loss))


def is_plain_call(place: Place) -> bool:
    """Whether a line's statement keeps no result: a call for its effect, or a sum that is added to."""
    tree = _tree(place[0])
    if tree is None:
        return False
    found = [node for node in ast.walk(tree) if isinstance(node, ast.stmt) and _contains(node, place[1])]
    innermost = min(found, key=lambda node: (node.end_lineno or 0) - node.lineno, default=None)
    return isinstance(innermost, ast.Expr | ast.AugAssign)


@cache
def _tree(file: str) -> ast.Module | None:
    try:
        return ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return None


def _function_of(code: CodeType) -> ast.AST | None:
    tree = _tree(code.co_filename)
    if tree is None or code.co_name == "<module>":
        return tree
    functions = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name == code.co_name
        # A function's first line is that of its first decorator.
        and (node.decorator_list[0].lineno if node.decorator_list else node.lineno) == code.co_firstlineno
    ]
    return functions[0] if functions else None


def _names_into_loss(loop: ast.AST, statements: list[ast.Assign | ast.AnnAssign], forward_line: int | None) -> set[str]:
    wanted: set[str] = set()
    for node in ast.walk(loop):
        is_backward = isinstance(node, ast.Call) and _called(node).endswith("backward")
        is_forward = isinstance(node, ast.stmt) and forward_line is not None and _is_simple_at(node, forward_line)
        if is_backward or is_forward:
            wanted |= _loads(node)
    while True:
        more = {name for s in statements if _targets(s) & wanted and s.value is not None for name in _loads(s.value)}
        if more <= wanted:
            return wanted
        wanted |= more


def _is_simple_at(node: ast.stmt, line: int) -> bool:
    return _contains(node, line) and not isinstance(node, ast.For | ast.While | ast.With | ast.If | ast.Try)


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _loads(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)} | {
        f"{n.value.id}.{n.attr}"
        for n in ast.walk(node)
        if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name)
    }


def _targets(statement: ast.Assign | ast.AnnAssign) -> set[str]:
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    stored = [node for target in targets for node in ast.walk(target)]
    names = {node.id for node in stored if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return names | {
        f"{node.value.id}.{node.attr}"
        for node in stored
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    }


def _contains(node: ast.stmt, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def _lines(*nodes: ast.stmt | ast.expr) -> set[int]:
    return {line for node in nodes for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)}
