"""Lines of the user's code: which one a stack comes from, and what a statement of a training loop is for."""

import ast
import linecache
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CodeType, FrameType

from brim.user_line import is_users_own

Place = tuple[str, int]  # file and line
NamesIn = Callable[[ast.stmt], set[str]]
NOT_THE_USERS = "brim_configured_training.py"  # the script that stands for a configuration


def stack(frame: FrameType | None) -> Iterator[FrameType]:
    """A frame and those that called it."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def line_of(frame: FrameType) -> int:
    """The line that a frame is on; that before it, where the instruction is one that Python added and has none."""
    if frame.f_lineno is not None:
        return frame.f_lineno
    code = frame.f_code
    before = [line for start, _, line in code.co_lines() if line is not None and start <= frame.f_lasti]
    return before[-1] if before else code.co_firstlineno


@cache
def is_own(file: str) -> bool:
    """Whether a file is the user's, which is asked thousands of times a second."""
    return is_users_own(file) and not file.endswith(NOT_THE_USERS)


def own_files(script: str) -> tuple[str, ...]:
    """The user's files that run in this process: the script, and modules that it imported."""
    loaded = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    # torch has modules whose file is a name only.
    files = {Path(file) for file in loaded if isinstance(file, str) and file.endswith(".py") and is_own(file)}
    others = sorted(str(file.resolve()) for file in files if file.is_absolute())
    return tuple(dict.fromkeys([str(Path(script).resolve()), *others]))


def users_place() -> Place | None:
    """The innermost line of the user's code that runs."""
    found = next((f for f in stack(sys._getframe(1)) if is_own(f.f_code.co_filename)), None)
    return None if found is None else (found.f_code.co_filename, line_of(found))


def shown(place: Place | None) -> str:
    """``train.py:31``; the folder is left out."""
    return "" if place is None else f"{Path(place[0]).name}:{place[1]}"


def text_of(place: Place | None) -> str:
    """The source of a line."""
    return "" if place is None else linecache.getline(*place).strip()


@dataclass(frozen=True)
class LoopLines:
    """The lines of a function on the way to the optimizer's step, by what they are for. The others are beside it."""

    heads: frozenset[int] = frozenset()  # of the loops around the step: running on one means asking for a batch
    data: frozenset[int] = frozenset()  # make what goes into the model
    training: frozenset[int] = frozenset()  # call the model, lead from there to the loss, or are the step itself
    # In ``train_step(model, next_batch())``: train_step, with next_batch that gives what it takes.
    givers: frozenset[tuple[str, str]] = frozenset()


def loop_lines(
    code: CodeType, step_line: int, forward_line: int | None, backward_lines: frozenset[int] = frozenset()
) -> LoopLines:
    """What the lines of a function do that the step was seen in at ``step_line``, the model at ``forward_line``, and
    backward passes at ``backward_lines``.

    Names are followed from the statement that calls the model: statements that what goes in depends on make data, those
    that depend on what comes out are training.
    """
    body = _function_of(code)
    if body is None:
        return LoopLines()
    loops = [node for node in ast.walk(body) if isinstance(node, ast.For | ast.While) and _contains(node, step_line)]
    heads = {line for loop in loops for line in _lines(*_asking(loop))}
    scope = min(loops, key=lambda loop: (loop.end_lineno or 0) - loop.lineno, default=body)
    simple = [node for node in ast.walk(scope) if isinstance(node, ast.stmt) and not hasattr(node, "body")]
    forward = [node for node in simple if forward_line is not None and _contains(node, forward_line)]
    after = _following(simple, {name for node in forward for name in _stores(node)})
    backward = [node for node in simple if _is_backward(node) or any(_contains(node, line) for line in backward_lines)]
    ends = [*backward, *(node for node in simple if isinstance(node, ast.Return) and node not in backward)]
    to_loss = _leading(simple, _names(ends))
    # Without a module that is called, everything that leads to the loss is the model.
    kept = [node for node in after if node in ends or node in to_loss] if forward else [*ends, *to_loss]
    step = [*backward, *(node for node in simple if _contains(node, step_line) or _is_update(node))]
    before = _before(simple, forward, _methods(code.co_filename))
    # What goes into the loss past the model: penalties of its weights are training, targets are data.
    beside = [node for node in _leading(simple, _names(backward or ends)) if node not in after] if forward else []
    model = {_full_name(part.func) for node in forward for part in ast.walk(node) if isinstance(part, ast.Call)}
    kept += [node for node in beside if node not in before and _loads(node) & model]
    data = [node for node in [*before, *beside] if node not in [*forward, *after, *kept, *step]]
    training = [*forward, *kept, *step]
    givers = {pair for node in forward if _contains(node, step_line) for pair in _calls_for_arguments(node)}
    training_lines = frozenset(_lines(*training)) - frozenset(heads)
    return LoopLines(frozenset(heads), frozenset(_lines(*data)), training_lines, frozenset(givers))


def _calls_for_arguments(node: ast.stmt) -> set[tuple[str, str]]:
    """Functions, each with one that is called for its arguments."""
    calls = [call for call in ast.walk(node) if isinstance(call, ast.Call)]
    given = [(call, value) for call in calls for value in (*call.args, *(keyword.value for keyword in call.keywords))]
    inner = [(call, part) for call, value in given for part in ast.walk(value) if isinstance(part, ast.Call)]
    return {(_called(call), _called(part)) for call, part in inner}


def _asking(loop: ast.For | ast.While) -> list[ast.expr]:
    """The part of a loop's head that asks for a batch: ``while (batch := feed.get()) is not None`` does, too."""
    if isinstance(loop, ast.For):
        return [loop.iter, loop.target]
    return [loop.test] if any(isinstance(part, ast.NamedExpr) for part in ast.walk(loop.test)) else []


@cache
def no_grad_region(code: CodeType, line: int) -> int | None:
    """Where the block or function without gradients begins that a line of a function is in; None for other lines."""
    body = _function_of(code)
    if body is None:
        return None
    if any(_stops_gradients(decorator) for decorator in getattr(body, "decorator_list", [])):
        return code.co_firstlineno
    blocks = [
        node
        for node in ast.walk(body)
        if isinstance(node, ast.With | ast.AsyncWith)
        and _contains(node, line)
        and any(_stops_gradients(item.context_expr) for item in node.items)
    ]
    return min((block.lineno for block in blocks), default=None)


def _stops_gradients(node: ast.expr) -> bool:
    """``torch.no_grad()``, ``torch.inference_mode``, ``set_grad_enabled(False)``."""
    call = node.func if isinstance(node, ast.Call) else node
    name = call.attr if isinstance(call, ast.Attribute) else getattr(call, "id", "")
    if name == "set_grad_enabled" and isinstance(node, ast.Call) and node.args:
        return isinstance(node.args[0], ast.Constant) and node.args[0].value is False
    return name in ("no_grad", "inference_mode")


def _following(statements: list[ast.stmt], names: set[str]) -> list[ast.stmt]:
    """Statements that use some names, or names that are made from them."""
    return _linked(
        statements, names, by=_loads, on=_stores
    )  # what is only looked at, as in print(loss), stores nothing


def _leading(statements: list[ast.stmt], names: set[str]) -> list[ast.stmt]:
    """Assignments that make some names, or names that those are made from."""
    return _linked(statements, names, by=_stores, on=_loads)


def _before(simple: list[ast.stmt], forward: list[ast.stmt], methods: dict[str, list[ast.stmt]]) -> list[ast.stmt]:
    """Statements that make what goes into the model, or hand it over: ``self.next_batch()``, ``model.set_input(x)``."""
    first = min((node.lineno for node in forward), default=0)

    def stores(node: ast.stmt) -> set[str]:
        return _stores(node) | (_given(node) if node.lineno < first else set())

    makes, needs = _with_methods(stores, methods), _with_methods(_loads, methods)
    return _linked(simple, {name for node in forward for name in needs(node)}, by=makes, on=needs)


def _given(node: ast.stmt) -> set[str]:
    """The object that a statement hands something to and has nothing back from."""
    call = node.value if isinstance(node, ast.Expr) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or not (call.args or call.keywords):
        return set()
    return {_full_name(call.func.value)} - {"self", ""}


def _with_methods(names_in: NamesIn, methods: dict[str, list[ast.stmt]]) -> NamesIn:
    """The same for a statement and the methods of ``self`` that it calls, whose names are those of ``self``."""

    def found(node: ast.stmt) -> set[str]:
        names, left = set(names_in(node)), [node]
        known: set[str] = set()
        while left:
            calls = {part.func for part in ast.walk(left.pop()) if isinstance(part, ast.Call)}
            called = {
                func.attr for func in calls if isinstance(func, ast.Attribute) and _full_name(func.value) == "self"
            }
            bodies = [body for name in called - known for body in methods.get(name, ())]
            known |= called
            left += bodies
            names |= {name for body in bodies for name in names_in(body) if name.startswith("self.")}
        return names

    return found


@cache
def _methods(file: str) -> dict[str, list[ast.stmt]]:
    """The methods of all classes of a file, by name: which of them is called, only the run would tell."""
    found: dict[str, list[ast.stmt]] = {}
    tree = _tree(file)
    for kind in ast.walk(tree) if tree is not None else ():
        for node in kind.body if isinstance(kind, ast.ClassDef) else ():
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found.setdefault(node.name, []).append(node)
    return found


def _linked(statements: list[ast.stmt], names: set[str], by: NamesIn, on: NamesIn) -> list[ast.stmt]:
    """Statements that have some of the names ``by`` one side, and those that have what these hand ``on``."""
    found: list[ast.stmt] = []
    for _ in statements:  # as often as names can be handed on
        more = [node for node in statements if node not in found and by(node) & names]
        if not more:
            break
        found += more
        names = names | {name for node in more for name in on(node)}
    return found


def _names(nodes: list[ast.stmt]) -> set[str]:
    """Those that some statements use."""
    return {name for node in nodes for name in _loads(node)}


def _full_name(node: ast.expr) -> str:
    """``model`` or ``self.model``, as `_loads` has it."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return f"{node.value.id}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def _is_update(node: ast.stmt) -> bool:
    """Whether it changes a weight or its gradient by hand: ``w -= lr * w.grad``, ``w.grad.zero_()``."""
    reads = {_root(part) for part in ast.walk(node) if isinstance(part, ast.Attribute) and part.attr == "grad"}
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and _called(node.value).endswith("_"):
        return _root(node.value.func) in reads
    targets = [node.target] if isinstance(node, ast.AugAssign) else node.targets if isinstance(node, ast.Assign) else []
    return any(_root(target) in reads for target in targets)


def _root(node: ast.expr) -> str:
    """The name at the beginning of ``w.data[0]``."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _is_backward(node: ast.stmt) -> bool:
    return any(isinstance(part, ast.Call) and _called(part).endswith("backward") for part in ast.walk(node))


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


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _loads(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)} | {
        f"{n.value.id}.{n.attr}"
        for n in ast.walk(node)
        if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name)
    }


def _stores(node: ast.stmt) -> set[str]:
    """Names that a statement sets; ``a.b`` counts as one."""
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)} | {
        f"{n.value.id}.{n.attr}"
        for n in ast.walk(node)
        if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store) and isinstance(n.value, ast.Name)
    }


def _contains(node: ast.stmt, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def _lines(*nodes: ast.stmt | ast.expr) -> set[int]:
    return {line for node in nodes for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)}
