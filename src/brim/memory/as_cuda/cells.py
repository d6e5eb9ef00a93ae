"""``LSTMCell`` and ``GRUCell`` through CUDA's fused kernels, which keep more for the backward than the CPU's steps do.

On CUDA a cell is two matrix products and one kernel for everything else. Autograd keeps all that its formula names:
the gates of both products, the state, the biases, and the kernel's own workspace, although the plain backward pass
reads the workspace alone (torch's derivatives.yaml, RNN.cu).
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.library import Library

from brim.memory.as_cuda.operators import for_fake_tensors

GATES_OF_GRU = 3
WORKSPACE_OF_GRU = 5  # what the kernel keeps, in states: three gates, the state before, and what the new gate added


def register_cells(library: Library) -> None:
    """LSTMCell and GRUCell take CUDA's way."""
    for name, cell in (("lstm_cell", _lstm_cell), ("gru_cell", _gru_cell)):
        library.impl(name, for_fake_tensors(name, cell), "AutogradCPU")


def _lstm_cell(
    x: Tensor, states: Sequence[Tensor], w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    hx, cx = states
    from_input, from_state = torch.matmul(x, w_ih.t()), torch.matmul(hx, w_hh.t())
    hy, cy = _FusedLstmCell.apply(from_input, from_state, cx, b_ih, b_hh)  # type: ignore[no-untyped-call]
    return hy, cy


def _gru_cell(
    x: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None
) -> Tensor:
    from_input, from_state = torch.matmul(x, w_ih.t()), torch.matmul(hx, w_hh.t())
    hy: Tensor = _FusedGruCell.apply(from_input, from_state, hx, b_ih, b_hh)  # type: ignore[no-untyped-call]
    return hy


class _FusedLstmCell(torch.autograd.Function):
    """``_thnn_fused_lstm_cell`` and its backward, of which only sizes are true."""

    @staticmethod
    def forward(
        ctx: Any, from_input: Tensor, from_state: Tensor, cx: Tensor, b_ih: Tensor | None, b_hh: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        workspace = torch.empty_like(from_input, memory_format=torch.contiguous_format)
        hy, cy = torch.empty_like(cx), torch.empty_like(cx)
        ctx.save_for_backward(from_input, from_state, cx, b_ih, b_hh, cy, workspace)
        ctx.set_materialize_grads(False)
        return hy, cy

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        _, _, cx, b_ih, _, _, workspace = ctx.saved_tensors
        gates, to_cx = torch.empty_like(workspace), torch.empty_like(cx)
        bias = None if b_ih is None else gates.sum(0)
        return gates, gates, to_cx, bias, bias


class _FusedGruCell(torch.autograd.Function):
    """``_thnn_fused_gru_cell`` and its backward, of which only sizes are true."""

    @staticmethod
    def forward(
        ctx: Any, from_input: Tensor, from_state: Tensor, hx: Tensor, b_ih: Tensor | None, b_hh: Tensor | None
    ) -> Tensor:
        workspace = hx.new_empty(hx.shape[0], WORKSPACE_OF_GRU * hx.shape[1])
        hy = torch.empty_like(hx)
        ctx.save_for_backward(from_input, from_state, hx, b_ih, b_hh, workspace)
        return hy

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        *_, hx, b_ih, _, workspace = ctx.saved_tensors
        width = GATES_OF_GRU * hx.shape[1]
        to_input, to_state = (workspace.new_empty(workspace.shape[0], width) for _ in range(2))
        to_hx = torch.empty_like(gradient)
        biases = (None, None) if b_ih is None else (to_input.sum(0), to_state.sum(0))
        return to_input, to_state, to_hx, *biases
