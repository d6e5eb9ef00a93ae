"""Recurrent layers through cuDNN, which takes a whole stack of layers and steps in one call."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.library import Library

from brim.memory.as_cuda.call_recorder import CallRecorder
from brim.memory.as_cuda.operators import for_fake_tensors
from brim.memory.kernels.recurrent import (
    DROPOUT_STATE_BYTES,
    Mode,
    Recurrent,
    backward_steps,
    forward_steps,
    reserve_bytes,
    weight_bytes,
)
from brim.memory.kernels.scope import Scope

MODES: dict[str, Mode] = {"lstm": "LSTM", "gru": "GRU", "rnn_tanh": "RNN", "rnn_relu": "RNN"}


def register_recurrent(library: Library, recorder: CallRecorder) -> None:
    """LSTM, GRU and RNN take cuDNN's way."""
    for name, mode in MODES.items():
        library.impl(f"{name}.input", for_fake_tensors(f"{name}.input", _layered(mode, recorder)), "AutogradCPU")
        library.impl(f"{name}.data", for_fake_tensors(f"{name}.data", _packed(mode, recorder)), "AutogradCPU")


def _layered(mode: Mode, recorder: CallRecorder) -> Callable[..., Any]:
    def call(
        x: Tensor, hidden: Any, params: Sequence[Tensor], has_biases: bool, layers: int, dropout: float, train: bool,
        bidirectional: bool, batch_first: bool,
    ) -> Any:  # fmt: skip
        batch, time = (x.shape[0], x.shape[1]) if batch_first else (x.shape[1], x.shape[0])
        layer = _layer(mode, x, params, has_biases, layers, dropout, train, bidirectional, batch_first, time, batch)
        return _run(layer, recorder, x, hidden, params)

    return call


def _packed(mode: Mode, recorder: CallRecorder) -> Callable[..., Any]:
    """A packed sequence has its steps one after the other: as many rows, in one long sequence."""

    def call(
        data: Tensor, batch_sizes: Tensor, hidden: Any, params: Sequence[Tensor], has_biases: bool, layers: int,
        dropout: float, train: bool, bidirectional: bool,
    ) -> Any:  # fmt: skip
        time = batch_sizes.shape[0]
        batch = -(-data.shape[0] // max(time, 1))
        layer = _layer(mode, data, params, has_biases, layers, dropout, train, bidirectional, False, time, batch)
        return _run(layer, recorder, data, hidden, params)

    return call


def _layer(
    mode: Mode, x: Tensor, params: Sequence[Tensor], has_biases: bool, layers: int, dropout: float, train: bool,
    bidirectional: bool, batch_first: bool, time: int, batch: int,
) -> Recurrent:  # fmt: skip
    hidden = params[0].shape[0] // {"LSTM": 4, "GRU": 3, "RNN": 1}[mode]
    recurrent_width = params[1].shape[1]
    autocast = torch.is_autocast_enabled("cpu")
    dtype = torch.get_autocast_dtype("cpu") if autocast else params[0].dtype
    return Recurrent(
        mode, x.shape[-1], hidden, time, batch, layers, recurrent_width if recurrent_width != hidden else 0,
        bidirectional, batch_first, dropout, dtype.itemsize, dtype == torch.float16,
        dtype != torch.bfloat16, autocast and params[0].dtype == torch.float32, has_biases, train,
    )  # fmt: skip


def _run(layer: Recurrent, recorder: CallRecorder, x: Tensor, hidden: Any, params: Sequence[Tensor]) -> Any:
    if layer.drops:
        recorder.allocate_once("dropout state of cuDNN", DROPOUT_STATE_BYTES)
    if layer.mode == "LSTM":
        return _CudnnRnn.apply(layer, recorder, x, hidden[0], hidden[1], *params)  # type: ignore[no-untyped-call]
    result = _CudnnRnn.apply(layer, recorder, x, hidden, None, *params)  # type: ignore[no-untyped-call]
    return result[0], result[1]


def _time_first(layer: Recurrent, x: Tensor, width: int, dtype: torch.dtype) -> Tensor:
    """What cuDNN writes lies in the order of time, and a batch-first layer gives a view of that."""
    if not layer.batch_first or x.dim() < 3:
        return x.new_empty((*x.shape[:-1], width), dtype=dtype)
    return x.new_empty((x.shape[1], x.shape[0], width), dtype=dtype).transpose(0, 1)


class _CudnnRnn(torch.autograd.Function):
    """``_cudnn_rnn`` and its backward, of which only sizes are true."""

    @staticmethod
    def forward(
        ctx: Any, layer: Recurrent, recorder: CallRecorder, x: Tensor, hx: Tensor, cx: Tensor | None, *params: Tensor
    ) -> Any:
        dtype = torch.get_autocast_dtype("cpu") if layer.autocast else params[0].dtype
        width = layer.output_size * layer.directions
        with recorder.paused():
            output = _time_first(layer, x, width, dtype)
            hy = torch.empty_like(hx, dtype=dtype)
            cy = None if cx is None else torch.empty_like(cx, dtype=dtype)
            reserve = x.new_empty(reserve_bytes(layer), dtype=torch.uint8)
            makes_weights = layer.autocast or not layer.flat_weights
            flat = x.new_empty(weight_bytes(layer), dtype=torch.uint8) if makes_weights else None
            cast = (hx, cx, x) if layer.autocast else (None, None, None)
            casts = [None if t is None else torch.empty_like(t, dtype=dtype) for t in cast]
        scope = Scope()
        forward_steps(layer, scope)
        scope.close()
        recorder.record_call(scope, "aten._cudnn_rnn.default", [output, hy, cy, reserve, flat, *casts])
        kept = casts if layer.autocast else [hx, cx, x]
        ctx.save_for_backward(*kept, output, reserve, *([flat] if makes_weights else params))
        ctx.layer, ctx.recorder, ctx.dtype = layer, recorder, dtype
        ctx.shapes = [(p.shape, p.dtype) for p in params]
        ctx.input_dtypes = [None if t is None else t.dtype for t in (x, hx, cx)]
        ctx.needs = ctx.needs_input_grad
        ctx.set_materialize_grads(False)
        return output, hy, cy

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        layer, recorder = ctx.layer, ctx.recorder
        hx, cx, x, *_ = ctx.saved_tensors
        with recorder.paused():
            dx, dhx = _time_first(layer, x, x.shape[-1], x.dtype), torch.empty_like(hx)
            dcx = None if cx is None else torch.empty_like(cx)
            flat = x.new_empty(weight_bytes(layer) // ctx.dtype.itemsize, dtype=ctx.dtype)
        scope = Scope()
        backward_steps(layer, scope, states_unused=gradients[1] is None)
        scope.close()
        recorder.record_call(scope, "aten._cudnn_rnn_backward.default", [dx, dhx, dcx, flat])
        weights, start = [], 0
        for shape, dtype in ctx.shapes:
            part = flat[start : start + shape.numel()].view(shape)
            start += shape.numel()
            weights.append(part if part.dtype == dtype else part.to(dtype))
        inputs = [None if t is None else t.to(d) for t, d in zip((dx, dhx, dcx), ctx.input_dtypes, strict=True)]
        wanted = [t if need else None for t, need in zip(inputs, ctx.needs[2:5], strict=True)]
        return (None, None, *wanted, *weights)
