"""Dropout, whose kernel makes its mask before its output; and sums, of which autograd makes some in place.

Where a tensor was used twice, autograd adds up the gradients. It writes the sum into the first of them if that is dense
and nobody else holds its storage (``can_accumulate_inplace`` in torch's input_buffer.cpp; a view is held by its base),
but never while operators are being watched, as they are in a trace. So the trace has a storage for a sum that does not
exist on a card. Who else holds the first term shows only when it dies, so the rule leaves a *hint*, a temporary of no
bytes, and `brim.memory.trace.accumulation` looks what dies.
"""

import torch
from torch import Tensor

from brim.memory.kernels.scope import Call, Rule, Scope

SUM = "aten.add.Tensor"
HINT = 0


def added(call: Call, scope: Scope) -> None:
    """``aten.add.Tensor``: a hint where the sum could lie in its first term."""
    first, total = call.args[0], call.outputs[0]
    if not is_in_backward() or not isinstance(first, Tensor) or total is None:
        return
    if not first._is_view() and (first.shape, first.dtype) == (total.shape, total.dtype) and _is_dense(first):
        scope.workspace(HINT)


def native_dropout(call: Call, scope: Scope) -> None:
    """``aten.native_dropout`` (``dropout_cuda`` in ATen's cuda/Dropout.cu)."""
    scope.output(1)
    scope.output(0)


RULES: dict[str, Rule] = {SUM: added, "aten.native_dropout.default": native_dropout}


def _is_dense(tensor: Tensor) -> bool:
    return torch.ops.aten.is_non_overlapping_and_dense.default(tensor)  # type: ignore[no-any-return]


def is_in_backward() -> bool:
    """Whether this thread runs the backward pass."""
    return bool(torch._C._current_graph_task_id() != -1)  # type: ignore[attr-defined]
