"""A loop of the user's with `brim.Step`, which captures the step as a CUDA graph."""

import ast
from dataclasses import dataclass

from brim.doctor.edits.loops import training_loop
from brim.doctor.edits.source import CannotEdit, Edit, Source, called, import_of

CLIPPING = "clip_grad_norm_"


@dataclass(frozen=True)
class _Parts:
    """The statements of a plain step, in one body: those that compute the loss, and what follows from it."""

    forward: list[ast.stmt]
    backward: ast.Expr
    loss: ast.expr
    clipping: ast.Call | None
    optimizer: ast.expr
    first: ast.stmt
    last: ast.stmt


def with_own_step(source: Source, line: int) -> list[Edit]:
    """``step = brim.Step(model, optimizer, loss_of_batch)`` before the loop, and ``loss = step(batch)`` in it.

    Args:
        source: The user's file.
        line: Where the optimizer's step, or anything else of the loop's body, is.

    Raises:
        CannotEdit: The loop is not of the plain form, or uses later what the loss function would keep for itself.
    """
    loop = training_loop(source, line)
    if not isinstance(loop, ast.For):
        raise CannotEdit
    modules = _trained_modules(source)
    parts = _parts(loop.body, modules)
    model = _model([*parts.forward, ast.Expr(parts.loss)], modules)
    batch = _batch_names(loop, parts)
    _check_names(source, loop, parts, set(batch))
    outer = _outermost(source, loop)
    indentation = source.indentation(outer)
    place = source.line_start(outer.lineno)
    packed = batch[0] if len(batch) == 1 else f"({', '.join(batch)})"
    edits = [Edit(place, place, _function(source, parts, model, batch, indentation))]
    keeps_loss = isinstance(parts.loss, ast.Name)
    call = f"training_step({packed})"
    text = f"{source.segment(parts.loss)} = {call}" if keeps_loss else call
    edits.append(Edit(source.start(parts.first), source.end(parts.last), text))
    return [*edits, *import_of(source, "brim")]


def _function(source: Source, parts: _Parts, model: ast.expr, batch: list[str], indentation: str) -> str:
    """The loss as a function of model and batch, and the step, before the loop."""
    inner = indentation + source.unit
    own = model.id if isinstance(model, ast.Name) else "_"
    unpacked = [f"{', '.join(batch)} = batch"]
    lines = [*unpacked, *(line for node in parts.forward for line in _dedented(source, node))]
    clipping = "" if parts.clipping is None else f", clip_norm={source.segment(parts.clipping.args[1])}"
    return (
        f"{indentation}def loss_of_batch({own}, batch):\n"
        + "".join(f"{inner}{line}\n" for line in lines)
        + f"{inner}return {source.segment(parts.loss)}\n\n"
        + f"{indentation}training_step = brim.Step({source.segment(model)}, {source.segment(parts.optimizer)},"
        + f" loss_of_batch{clipping})\n"
    )


def _dedented(source: Source, node: ast.stmt) -> list[str]:
    before = source.indentation(node)
    assert node.end_lineno is not None
    if any(
        isinstance(part, ast.Constant | ast.JoinedStr) and part.end_lineno != part.lineno for part in ast.walk(node)
    ):
        raise CannotEdit
    text = source.data[source.line_start(node.lineno) : source.end(node)].decode()
    return [line.removeprefix(before) for line in text.split("\n")]


def _parts(body: list[ast.stmt], modules: set[str]) -> _Parts:
    """zero_grad, forward, backward, perhaps clipping, step: each once, in the body of the loop itself."""
    steps = [node for node in body if _is_call(node, "step") and not _mentions(node, ("scheduler", "scaler", "sched"))]
    clears = [node for node in body if _is_call(node, "zero_grad")]
    backwards = [node for node in body if _is_call(node, "backward")]
    if len(backwards) != 1 or len(clears) != 1 or not steps or any(_mentions(n, ("scaler", "scale")) for n in body):
        raise CannotEdit
    clear, backward = clears[0], backwards[0]
    assert isinstance(clear, ast.Expr) and isinstance(backward, ast.Expr)
    optimizer = _receiver(clear)
    made = [node for node in steps if ast.dump(_receiver(node)) == ast.dump(optimizer)]
    if len(made) != 1 or len(steps) > 1 or _arguments(backward) or _arguments(made[0]):
        raise CannotEdit
    step = made[0]
    span = sorted([clear, backward, step], key=body.index)
    first = body.index(clear) if body.index(clear) < body.index(backward) else None
    between = body[body.index(backward) + 1 : body.index(step)]
    clipping = [node for node in between if _is_call(node, CLIPPING)]
    others = [node for node in between if node not in clipping and node is not clear]
    if others or len(clipping) > 1 or body.index(step) < body.index(backward):
        raise CannotEdit
    loss = _receiver(backward)
    forward = _leading_to([node for node in body[: body.index(backward)] if node is not clear], loss, modules)
    start = min(([] if first is None else [first]) + [body.index(node) for node in [*forward, backward]])
    inside = body[start : body.index(span[-1]) + 1]
    if {id(node) for node in inside} != {id(node) for node in [*forward, clear, backward, *clipping, step]}:
        raise CannotEdit
    return _Parts(forward, backward, loss, _clip_call(clipping), optimizer, body[start], span[-1])


def _clip_call(clipping: list[ast.stmt]) -> ast.Call | None:
    if not clipping:
        return None
    call = clipping[0].value if isinstance(clipping[0], ast.Expr) else None
    if not isinstance(call, ast.Call) or len(call.args) != 2 or call.keywords:
        raise CannotEdit
    return call


def _leading_to(before: list[ast.stmt], loss: ast.expr, modules: set[str]) -> list[ast.stmt]:
    """The assignments from the call of the model to the loss."""
    if not isinstance(loss, ast.Name):
        return []
    wanted: set[str] = {loss.id}
    found: list[ast.stmt] = []
    for node in reversed(before):
        if isinstance(node, ast.Assign | ast.AugAssign) and _stored(node) & wanted:
            found.insert(0, node)
            wanted |= {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}
    # What comes before the first call of the model makes the batch.
    models = [place for place, node in enumerate(found) if _model_calls([node], modules)]
    if not models:
        raise CannotEdit
    return found[models[0] :]


def _trained_modules(source: Source) -> set[str]:
    """What has its parameters asked for, as when an optimizer is made."""
    methods = [call.func for call in source.calls() if isinstance(call.func, ast.Attribute)]
    return {ast.dump(method.value) for method in methods if method.attr == "parameters"}


def _model_calls(nodes: list[ast.stmt], modules: set[str]) -> list[ast.expr]:
    calls = [part for node in nodes for part in ast.walk(node) if isinstance(part, ast.Call)]
    return [call.func for call in calls if ast.dump(call.func) in modules]


def _model(nodes: list[ast.stmt], modules: set[str]) -> ast.expr:
    """The one model that is called, and trained."""
    found = _model_calls(nodes, modules)
    if len({ast.dump(each) for each in found}) != 1 or len(modules) != 1:
        raise CannotEdit
    return found[0]


def _batch_names(loop: ast.For, parts: _Parts) -> list[str]:
    """Names that the loop sets and the loss depends on, in the order of their first use."""
    inside = {id(node) for node in parts.forward}
    made = {n.id for n in ast.walk(loop.target) if isinstance(n, ast.Name)}
    for node in loop.body:
        if node is parts.first or id(node) in inside:
            break
        made |= _stored(node)
    kept = {name for node in parts.forward for name in _stored(node)}
    expressions: list[ast.AST] = [*parts.forward, *([] if isinstance(parts.loss, ast.Name) else [parts.loss])]
    used = [
        n for node in expressions for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)
    ]
    ordered = dict.fromkeys(n.id for n in sorted(used, key=lambda n: (n.lineno, n.col_offset)))
    names = [name for name in ordered if name in made and name not in kept]
    if not names:
        raise CannotEdit
    return names


def _check_names(source: Source, loop: ast.For, parts: _Parts, batch: set[str]) -> None:
    """Refuse where something that the loss function keeps for itself is used elsewhere, or a new name is taken."""
    names = [node for node in ast.walk(source.tree) if isinstance(node, ast.Name)]
    if {"loss_of_batch", "training_step", "brim"} & {node.id for node in names if isinstance(node.ctx, ast.Store)}:
        raise CannotEdit
    loss = {parts.loss.id} if isinstance(parts.loss, ast.Name) else set()
    kept = {name for node in parts.forward for name in _stored(node)} - loss
    inside = [(node.lineno, node.end_lineno or node.lineno) for node in [*parts.forward, parts.backward]]
    for node in names:
        is_inside = any(first <= node.lineno <= last for first, last in inside)
        if node.id in kept and isinstance(node.ctx, ast.Load) and not is_inside:
            raise CannotEdit


def _outermost(source: Source, loop: ast.stmt) -> ast.stmt:
    """The outermost loop of the same function: the step is made once, before it."""
    functions = [node for node in source.nodes(loop.lineno) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    scope: ast.AST = max(functions, key=lambda node: node.lineno, default=source.tree)
    loops = [
        node for node in ast.walk(scope)
        if isinstance(node, ast.For | ast.While) and node.lineno <= loop.lineno <= (node.end_lineno or 0)
    ]  # fmt: skip
    if isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef) and _is_called_in_a_loop(source, scope.name):
        raise CannotEdit  # it would be made, and the step captured, in every epoch
    return min(loops, key=lambda node: node.lineno)


def _is_called_in_a_loop(source: Source, name: str) -> bool:
    loops = [node for node in ast.walk(source.tree) if isinstance(node, ast.For | ast.While)]
    return any(called(part) == name for loop in loops for part in ast.walk(loop))


def _is_call(node: ast.stmt, name: str) -> bool:
    return isinstance(node, ast.Expr) and called(node.value) == name


def _receiver(node: ast.stmt) -> ast.expr:
    """``optimizer`` of ``optimizer.step()``."""
    call = node.value if isinstance(node, ast.Expr) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        raise CannotEdit
    return call.func.value


def _arguments(node: ast.stmt) -> bool:
    call = node.value if isinstance(node, ast.Expr) else None
    return isinstance(call, ast.Call) and bool(call.args or call.keywords)


def _mentions(node: ast.AST, names: tuple[str, ...]) -> bool:
    return any(
        (isinstance(part, ast.Name) and any(name in part.id.lower() for name in names))
        or (isinstance(part, ast.Attribute) and any(name in part.attr.lower() for name in names))
        for part in ast.walk(node)
    )


def _stored(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
