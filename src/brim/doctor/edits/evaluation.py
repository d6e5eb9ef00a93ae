"""Evaluation that copies every batch to the host: results stay where they are, and are copied once."""

import ast

from brim.doctor.edits.source import CannotEdit, Edit, Node, Source, called

JOINING = ("cat", "concat", "concatenate", "vstack")


def with_one_copy(source: Source, line: int) -> list[Edit]:
    """``outputs.append(model(x).cpu())`` without the copy, and ``torch.cat(outputs).cpu()`` after the loop."""
    loops = [node for node in source.nodes(line) if isinstance(node, ast.For | ast.While)]
    if not loops:
        raise CannotEdit
    loop = max(loops, key=lambda loop: loop.lineno)
    edits: list[Edit] = []
    for statement in (part for node in loop.body for part in ast.walk(node) if isinstance(part, ast.Expr)):
        edits += _collected(source, loop, statement.value)
    if not edits:
        raise CannotEdit
    return edits


def _collected(source: Source, loop: ast.stmt, call: ast.expr) -> list[Edit]:
    """One list of results: the copy in the loop, and where the list is joined."""
    if called(call) != "append" or not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return []
    collected, value = call.func.value, call.args[0] if call.args else None
    copies, inner = _copies(value)
    if not copies or inner is None or not isinstance(collected, ast.Name):
        return []
    joined = _joined_at(source, loop, collected.id)
    if joined is None or value is None:
        return []
    more: list[Node] = [*joined.args[1:], *joined.keywords]
    arguments = "".join(f", {source.segment(part)}" for part in more)
    after = f"torch.cat({collected.id}{arguments.replace('axis=', 'dim=')})" + copies
    return [Edit(source.end(inner), source.end(value), ""), Edit(source.start(joined), source.end(joined), after)]


def _copies(value: ast.expr | None) -> tuple[str, ast.expr | None]:
    """The calls at the end of an expression that bring it to the host, and what is before them."""
    names: list[str] = []
    while (
        isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and not value.args and not value.keywords
    ):
        if value.func.attr not in ("cpu", "numpy", "detach"):
            break
        names.insert(0, value.func.attr)
        value = value.func.value
    return ("".join(f".{name}()" for name in names) if "cpu" in names else ""), value


def _joined_at(source: Source, loop: ast.stmt, name: str) -> ast.Call | None:
    """The one place after the loop where the list is used, if it is joined there."""
    uses = [
        node
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)
    ]
    outside = [node for node in uses if not loop.lineno <= node.lineno <= (loop.end_lineno or loop.lineno)]
    if len(outside) != 1 or len(uses) != 2 or outside[0].lineno < loop.lineno:
        return None
    for call in source.calls():
        if called(call) in JOINING and call.args and call.args[0] is outside[0]:
            return call
    return None
