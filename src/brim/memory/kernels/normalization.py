"""Temporaries of normalisations and softmax on CUDA.

All rules give the measured sizes on every record of the H200 (torch 2.11, cuDNN 9.19, 2026-11-15): layer norm 186
forward and 181 backward, RMS norm 146 and 146, ATen's batch norm 465 and 466, cuDNN's batch norm 224 and 217, group
norm 100 and 100, softmax 301 and 322, log-softmax 242 and 242, safe softmax 21.

ATen's batch norm follows its header. That layer and RMS norm add up long inputs in two passes is confirmed for the
number of rows (65536 not, 131072 so) and of parts; that wide inputs (half the multiprocessors times 32 columns) are
exempt is not: the records have at most 1024 columns there. The workspace of cuDNN's channels-last batch norm is fitted
(39 shapes, no error) and may differ on other cards. Not measured: batch norm of inputs that are neither contiguous nor
channels last, batch norm in evaluation, group norm without weights or of single pixels.

torch 2.11 chooses cuDNN's batch norm for float32 inputs of three and more dimensions with weight and bias, in either
layout; its own (``native_batch_norm``) for halves, for two dimensions and for instance norm without weights.
"""

from math import prod

import torch
from torch import Tensor

from brim.memory.kernels.reduction_launch import (
    Source,
    accumulator_size,
    divide_up,
    last_power_of_two,
    reduce_in,
    reduction_plan,
    source_of,
)
from brim.memory.kernels.scope import Call, Rule, Scope

INT = 4
WELFORD_STATE = 16

# ATen/native/cuda/Normalization.cuh, the channels-last kernels.
TILE_WIDTH = 32
ELEMENTS_PER_THREAD = 16
MAX_BLOCK = 512
MAX_GRID_HEIGHT = 128
WORTH_A_GRID = 8

# layer_norm_kernel.cu: long, narrow inputs have the gradients of weight and bias added up in two passes.
LONG_ROWS = 64 * 1024
ROWS_PER_PART = 32
COLUMNS_PER_BLOCK = 32
MAX_BLOCKS = 32 * 1024


# Layer and RMS normalisation


def row_norm(call: Call, scope: Scope) -> None:
    """Forward of layer and RMS norm: only a copy of an input that is not contiguous."""
    copy = scope.copy(call.args[0])
    scope.outputs(call, 0, 1, 2)
    scope.free(copy)


def sum_of_parts(call: Call, scope: Scope, place: int, shape: tuple[int, int], dtype: torch.dtype) -> None:
    """The second pass: ``parts.sum(0)``, whose result is the gradient."""
    scope.output(place)
    parts = Source(shape, (shape[1], 1), 0, dtype)
    reduce_in(scope, reduction_plan(parts, (0,), dtype.itemsize), accumulator_size(dtype), call.card)


def row_norm_gradient(call: Call, scope: Scope, columns: int, affine: tuple[int, ...]) -> None:
    """Backward of layer and RMS norm; ``affine`` are the places of the gradients of weight and bias, which in two
    passes are allocated twice: the first ones are replaced by the sums over the parts."""
    gradient, source = call.args[0], call.args[1]
    wanted = [place for place in affine if place < len(call.outputs) and call.outputs[place] is not None]
    rows = source.numel() // max(columns, 1)
    two_passes = rows > LONG_ROWS and columns // COLUMNS_PER_BLOCK < call.card.multiprocessors // 2
    source_copy = scope.copy(source)
    scope.outputs(call, 0)
    if not (two_passes and wanted):
        scope.outputs(call, *wanted)
        scope.free(scope.copy(gradient), source_copy)
        return
    width = columns * source.element_size()
    replaced = [scope.allocate(width) for _ in wanted]
    gradient_copy = scope.copy(gradient)
    blocks_across = divide_up(columns, COLUMNS_PER_BLOCK)
    shape = (min(divide_up(rows, ROWS_PER_PART), MAX_BLOCKS // blocks_across), columns)
    parts = [scope.allocate(shape[0] * width) for _ in wanted]
    for place, old in zip(wanted, replaced, strict=True):
        sum_of_parts(call, scope, place, shape, source.dtype)
        scope.free(old)
    scope.free(*parts, gradient_copy, source_copy)


def layer_norm_gradient(call: Call, scope: Scope) -> None:
    row_norm_gradient(call, scope, prod(call.args[2]), (1, 2))


def rms_norm_gradient(call: Call, scope: Scope) -> None:
    row_norm_gradient(call, scope, prod(call.args[2]), (1,))


# Batch normalisation


def channels_last_like(tensor: Tensor) -> bool:
    """Whether ATen's channels-last kernels take this tensor: channels are next to each other."""
    if tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last):
        return True
    if tensor.dim() == 5 and tensor.is_contiguous(memory_format=torch.channels_last_3d):
        return True
    return tensor.is_contiguous() and tensor.stride(1) == 1


def staging_grid(rows: int, channels: int) -> tuple[int, int]:
    """``flexible_launch_configs``: the grid of a channels-last reduction, 1 high when no grid is worth it."""
    width = min(last_power_of_two(channels), TILE_WIDTH)
    height = min(last_power_of_two(divide_up(rows, ELEMENTS_PER_THREAD)), MAX_BLOCK // width)
    if width * height != MAX_BLOCK:
        width = min(last_power_of_two(channels), MAX_BLOCK // height)
    grid_height = min(divide_up(rows, height * ELEMENTS_PER_THREAD), MAX_GRID_HEIGHT)
    return divide_up(channels, width), grid_height if grid_height >= WORTH_A_GRID else 1


def staged_reduction(scope: Scope, source: Tensor, values: int) -> None:
    """Blocks of a channels-last reduction meet in ``values`` numbers per channel and grid row, with semaphores."""
    channels = source.shape[1]
    grid_width, grid_height = staging_grid(source.numel() // channels, channels)
    if grid_height > 1:
        staging = scope.allocate(values * channels * grid_height * accumulator_size(source.dtype))
        scope.workspace(INT * grid_width)
        scope.free(staging)


def batch_norm(call: Call, scope: Scope) -> None:
    """ATen's own kernels. Statistics of contiguous inputs need nothing, of channels-last ones a staging buffer;
    of other layouts they are a plain ``var_mean``."""
    source = call.args[0]
    scope.outputs(call, 0, 1, 2)
    if not call.argument(5, "training", True) or source.numel() == 0:
        return
    if channels_last_like(source):
        staged_reduction(scope, source, values=4)
    elif not source.is_contiguous():
        over = [dim for dim in range(source.dim()) if dim != 1]
        plan = reduction_plan(source_of(source), over, accumulator_size(source.dtype))
        reduce_in(scope, plan, WELFORD_STATE, call.card, accumulates_in_output=False)


def batch_norm_gradient(call: Call, scope: Scope) -> None:
    """Contiguous: one fused kernel without temporaries. Channels last: two sums per channel, then a staging buffer
    where the gradient is channels last too."""
    gradient, source = call.args[0], call.args[1]
    if not channels_last_like(source) or source.numel() == 0:
        scope.outputs(call, 0, 1, 2)
        return
    width = source.shape[1] * accumulator_size(source.dtype)
    sums = [scope.allocate(width), scope.allocate(width)]
    scope.outputs(call, 1, 2)
    if channels_last_like(gradient):
        staged_reduction(scope, source, values=2)
    scope.outputs(call, 0)
    scope.free(*sums)


def cudnn_blocks(source: Tensor, rows_per_block: int) -> int:
    """cuDNN's channels-last batch norm works on tiles of some pixels and 64 channels."""
    channel_groups = divide_up(source.shape[1], 64)
    return divide_up(source.numel() // source.shape[1], rows_per_block) * channel_groups


def is_channels_last(tensor: Tensor) -> bool:
    return channels_last_like(tensor) and not tensor.is_contiguous()


def cudnn_batch_norm(call: Call, scope: Scope) -> None:
    """cuDNN takes a workspace for channels last in training, and none otherwise."""
    source = call.args[0]
    scope.outputs(call, 0, 1, 2, 3)
    if call.argument(5, "training", True) and is_channels_last(source):
        groups = divide_up(source.shape[1], 64)
        scope.workspace(cudnn_blocks(source, rows_per_block=64) * 516 + 1072 + INT * groups)


def cudnn_batch_norm_gradient(call: Call, scope: Scope) -> None:
    source, gradient = call.args[0], call.args[1]
    last = is_channels_last(source)
    # torch brings the gradient to the input's layout, in one piece.
    in_pieces = not last and not gradient.is_contiguous()
    copy = scope.allocate(gradient.nbytes) if last != is_channels_last(gradient) or in_pieces else None
    scope.outputs(call, 0, 1, 2)
    if last:
        groups = divide_up(source.shape[1], 64)
        scope.workspace(cudnn_blocks(source, rows_per_block=96) * 512 + 1056 + INT * groups)
    scope.free(copy)


# Group normalisation


def group_norm(call: Call, scope: Scope) -> None:
    """``(input, weight, bias, N, C, HxW, group, eps)``: weight and bias are folded with the statistics into one factor
    and one summand per sample and channel."""
    source, batch, channels, pixels = call.args[0], call.args[3], call.args[4], call.args[5]
    scope.outputs(call, 0, 1, 2)
    affine = call.args[1] is not None or call.args[2] is not None
    if pixels == 1 or not affine:
        return
    size = batch * channels * accumulator_size(source.dtype)
    factors = scope.allocate(size)
    scope.workspace(size)
    scope.free(factors)


def group_norm_gradient(call: Call, scope: Scope) -> None:
    """``(grad, input, mean, rstd, weight, N, C, HxW, group, mask)``: two sums per sample and channel, two factors per
    sample and group, and, with a weight, one factor per sample and channel."""
    source, weight = call.args[1], call.args[4]
    batch, channels, groups = call.args[5], call.args[6], call.args[8]
    scope.outputs(call, 0, 1, 2)
    width = accumulator_size(source.dtype)
    held = [scope.allocate(batch * channels * width) for _ in range(2)]
    if call.outputs[0] is not None:
        held += [scope.allocate(batch * groups * width) for _ in range(2)]
        if weight is not None:
            held.append(scope.allocate(batch * channels * width))
    scope.free(*held[2:], *held[:2])


# Softmax and losses


def softmax_gradient(call: Call, scope: Scope) -> None:
    """``grad * output`` is made first, whatever the layout."""
    scope.outputs(call, 0)
    scope.workspace(call.args[1].nbytes)


def log_softmax_gradient(call: Call, scope: Scope) -> None:
    scope.outputs(call, 0)
    copies = [scope.copy(call.args[0]), scope.copy(call.args[1])]
    scope.free(*copies)


def softmax(call: Call, scope: Scope) -> None:
    """Forward of softmax and log-softmax: a copy of an input that is not contiguous."""
    scope.outputs(call, 0)
    scope.free(scope.copy(call.args[0]))


def safe_softmax(call: Call, scope: Scope) -> None:
    """A bool per element (is it minus infinity?), one per row (are all?), and a scalar zero."""
    source, dim = call.args[0], call.args[1]
    scope.outputs(call, 0)
    infinite = scope.allocate(source.numel())
    whole_rows = scope.allocate(source.numel() // max(source.shape[dim], 1))
    scope.workspace(call.outputs[0].element_size() if call.outputs[0] is not None else INT)
    scope.free(whole_rows, infinite)


RULES: dict[str, Rule] = {
    "aten.native_layer_norm.default": row_norm,
    "aten.native_layer_norm_backward.default": layer_norm_gradient,
    "aten._fused_rms_norm.default": row_norm,
    "aten._fused_rms_norm_backward.default": rms_norm_gradient,
    "aten.native_batch_norm.default": batch_norm,
    "aten.native_batch_norm_backward.default": batch_norm_gradient,
    "aten.cudnn_batch_norm.default": cudnn_batch_norm,
    "aten.cudnn_batch_norm_backward.default": cudnn_batch_norm_gradient,
    "aten.native_group_norm.default": group_norm,
    "aten.native_group_norm_backward.default": group_norm_gradient,
    "aten._softmax.default": softmax,
    "aten._softmax_backward_data.default": softmax_gradient,
    "aten._log_softmax.default": softmax,
    "aten._log_softmax_backward_data.default": log_softmax_gradient,
    "aten._safe_softmax.default": safe_softmax,
}
