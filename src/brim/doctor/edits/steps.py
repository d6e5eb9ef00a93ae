"""Optimizers, threads and copies: small changes of the calls that are there."""

import ast

from brim.doctor.edits.source import CannotEdit, Edit, Source, after_imports, called, with_keyword


def with_fused(source: Source, optimizers: set[str]) -> list[Edit]:
    """Optimizers with ``fused=True``, in the place of a ``foreach`` that was asked for."""
    edits = []
    for call in source.calls():
        if called(call) in optimizers and (call.args or call.keywords):
            asked = next((keyword for keyword in call.keywords if keyword.arg == "foreach"), None)
            edits.append(
                with_keyword(source, call, "fused", "True")
                if asked is None
                else Edit(source.start(asked), source.end(asked), "fused=True")
            )
    return _needed(edits)


def with_dropped_gradients(source: Source) -> list[Edit]:
    """``zero_grad()`` where gradients were to be filled with zeros."""
    edits = []
    for call in source.calls():
        values = [*call.args, *(keyword.value for keyword in call.keywords if keyword.arg == "set_to_none")]
        if called(call) == "zero_grad" and len(values) == 1 and _is_false(values[0]):
            assert isinstance(call.func, ast.Attribute)
            edits.append(Edit(source.end(call.func), source.end(call), "()"))
    return _needed(edits)


def without_anomaly_detection(source: Source) -> list[Edit]:
    """``set_detect_anomaly(False)``, which is a context, too, and ``detect_anomaly=False`` of a trainer."""
    edits = []
    for call in source.calls():
        name, asked = called(call), [keyword for keyword in call.keywords if keyword.arg == "detect_anomaly"]
        if name == "detect_anomaly" and isinstance(call.func, ast.Attribute):
            prefix = source.segment(call.func.value)
            edits.append(Edit(source.start(call), source.end(call), f"{prefix}.set_detect_anomaly(False)"))
        elif name == "set_detect_anomaly" and call.args:
            asked.append(ast.keyword("", call.args[0]))
        edits += [
            Edit(source.start(one.value), source.end(one.value), "False")
            for one in asked
            if isinstance(one.value, ast.Constant) and one.value.value is True
        ]
    return _needed(edits)


def _is_false(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is False


def with_copies_that_do_not_wait(source: Source, line: int) -> list[Edit]:
    """``.to(device, non_blocking=True)``."""
    copies = [
        call for call in source.calls(line) if called(call) in ("to", "cuda") and isinstance(call.func, ast.Attribute)
    ]
    return _needed([with_keyword(source, call, "non_blocking", "True") for call in copies])


def with_threads(source: Source, count: int) -> list[Edit]:
    """``torch.set_num_threads``: the call that is there, or a new one."""
    calls = [call for call in source.calls() if called(call) == "set_num_threads" and len(call.args) == 1]
    if calls:
        return [Edit(source.start(call.args[0]), source.end(call.args[0]), str(count)) for call in calls]
    return [after_imports(source, f"\ntorch.set_num_threads({count})", "torch")]


def with_tf32(source: Source) -> list[Edit]:
    return [after_imports(source, '\ntorch.set_float32_matmul_precision("high")', "torch")]


def _needed(edits: list[Edit]) -> list[Edit]:
    if not edits:
        raise CannotEdit
    return edits
