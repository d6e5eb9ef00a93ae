"""The training loop in a syntax tree: what counts its steps, and statements that need not run in each."""

import ast
from typing import TypeGuard

from brim.doctor.edits.source import CannotEdit, Edit, Source, called

EVERY = 50  # steps
PROGRESS_BARS = ("tqdm", "track", "progress_bar")
COLLECTING = ("append", "extend", "add", "update", "insert", "put", "appendleft")


def training_loop(source: Source, line: int) -> ast.For | ast.While:
    """The innermost loop around a line that makes optimizer steps."""
    loops = [
        node
        for node in source.nodes(line)
        if isinstance(node, ast.For | ast.While)
        and any(called(part) in ("step", "backward") for part in ast.walk(node))
    ]
    if not loops:
        raise CannotEdit
    return max(loops, key=lambda loop: loop.lineno)


def counter(source: Source, loop: ast.For | ast.While) -> tuple[str, list[Edit]]:
    """The name that counts a loop's rounds, and what has to be changed for it."""
    if isinstance(loop, ast.While):
        counts = [node.target.id for node in loop.body if _adds_one(node) and isinstance(node.target, ast.Name)]
        if not counts:
            raise CannotEdit
        return counts[0], []
    over = _inner_iterable(loop.iter)
    target = loop.target
    if called(over) in ("range", "trange") and isinstance(target, ast.Name) and not _has_stride(over):
        return target.id, []
    if called(over) == "enumerate" and isinstance(target, ast.Tuple) and isinstance(target.elts[0], ast.Name):
        return target.elts[0].id, []
    name = _free_name(source)
    text = source.segment(target)
    inner = f"({text})" if isinstance(target, ast.Tuple) and not text.startswith("(") else text
    return name, [
        Edit(source.start(target), source.end(target), f"{name}, {inner}"),
        Edit(source.start(loop.iter), source.start(loop.iter), "enumerate("),
        Edit(source.end(loop.iter), source.end(loop.iter), ")"),
    ]


def _has_stride(over: ast.expr) -> bool:
    """Whether a range counts samples, say, and not rounds: ``range(0, len(data), batch_size)``."""
    return isinstance(over, ast.Call) and (len(over.args) > 2 or any(isinstance(a, ast.Starred) for a in over.args))


def _adds_one(node: ast.stmt) -> TypeGuard[ast.AugAssign]:
    if not isinstance(node, ast.AugAssign) or not isinstance(node.op, ast.Add):
        return False
    return isinstance(node.value, ast.Constant) and node.value.value == 1


def _inner_iterable(node: ast.expr) -> ast.expr:
    """What a progress bar goes over."""
    while isinstance(node, ast.Call) and called(node) in PROGRESS_BARS and node.args:
        node = node.args[0]
    return node


def _free_name(source: Source) -> str:
    used = {node.id for node in ast.walk(source.tree) if isinstance(node, ast.Name)}
    used |= {node.arg for node in ast.walk(source.tree) if isinstance(node, ast.arg)}
    return next(name for name in ("step", "step_number", "number_of_step") if name not in used)


def every_so_often(source: Source, line: int) -> list[Edit]:
    """The statement on a line, in every fiftieth step only; a file that is opened for it is opened then only."""
    loop = training_loop(source, line)
    statement = _whole(source, loop, line)
    name, edits = counter(source, loop)
    indentation = source.indentation(statement)
    first, last = statement.lineno, statement.end_lineno or statement.lineno
    if last > first and any(_is_long_string(part) for part in ast.walk(statement)):
        raise CannotEdit
    guard = f"{indentation}if {name} % {EVERY} == 0:\n"
    lines = [(source.line_start(number), number) for number in range(first, last + 1)]
    return [*edits, *(Edit(start, start, (guard if number == first else "") + source.unit) for start, number in lines)]


def _whole(source: Source, loop: ast.stmt, line: int) -> ast.stmt:
    """A call that stands for itself, with the block around it that is there for such calls alone."""
    blocks = [node for node in source.nodes(line) if isinstance(node, ast.With) and node.lineno > loop.lineno]
    if not blocks:
        statement = source.statement(line)
        if not _only_shows(statement):
            raise CannotEdit
        return statement
    block = min(blocks, key=lambda node: node.lineno)
    opens = all(called(item.context_expr) == "open" for item in block.items)
    if len(blocks) > 1 or not opens or not all(_only_shows(node) for node in block.body):
        raise CannotEdit
    return block


def _only_shows(statement: ast.stmt) -> bool:
    """Whether a statement is a call whose result nobody uses, and which collects nothing."""
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
        return False
    keeps = any(isinstance(part, ast.NamedExpr) for part in ast.walk(statement))
    return called(statement.value) not in COLLECTING and not keeps


def _is_long_string(node: ast.AST) -> bool:
    is_text = isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))
    return is_text and getattr(node, "end_lineno", 0) != getattr(node, "lineno", 0)


def without_reading(source: Source, line: int) -> list[Edit]:
    """``total += loss.item()`` and the like with the tensor itself, so that the host does not wait for it."""
    statement = source.statement(line)
    training_loop(source, line)
    collects = isinstance(statement, ast.Expr) and called(statement.value) in COLLECTING
    if not (collects or isinstance(statement, ast.AugAssign)):
        raise CannotEdit
    edits = []
    for part in ast.walk(statement):
        if isinstance(part, ast.Call) and called(part) == "item" and isinstance(part.func, ast.Attribute):
            value = part.func.value
            while isinstance(value, ast.Call) and called(value) in ("cpu", "detach") and not value.args:
                assert isinstance(value.func, ast.Attribute)
                value = value.func.value
            edits.append(Edit(source.end(value), source.end(part), ".detach()"))
    if not edits:
        raise CannotEdit
    return edits
