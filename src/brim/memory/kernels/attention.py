"""Which kernel torch chooses for scaled dot-product attention on CUDA, and what that kernel allocates.

Choice. ``choose_attention_kernel`` follows torch's own filters (``sdp_utils.cpp``). On the H200 (torch 2.11,
cuDNN 9.19, 2026-11-15) it was right for all 279 random calls recorded: 201 cuDNN, 57 memory-efficient, 19 math, 2
flash. For other generations it is torch's published rules, not measured.

What torch does before the kernel shows as operators of its own, not as temporaries: a bool mask becomes a float one
(``where``); for the memory-efficient kernel a mask whose last dimension is no multiple of 8 is padded to one, sliced
back and expanded to batch and heads; for flash a head dimension that is no multiple of 8 is padded to one, and its
gradient cut again.

Temporaries. Exact on the same card: cuDNN forward (202 calls) and backward (202), memory-efficient backward in float32
(66), flash forward and backward (2 each, without split keys or shared heads). Not measured: memory-efficient backward
in half precision or on other generations (sizes from torch's headers; which tile fits a card's shared memory and how
keys are split is an assumption), flash with split keys or shared heads (flash's published heuristic). A gradient for
the mask is not modelled. cuDNN's workspace was measured on Hopper only and may differ elsewhere.
"""

from dataclasses import dataclass
from math import ceil
from typing import Literal

import torch
from torch import Tensor

from brim.memory.kernels.reduction_launch import HALVES, divide_up
from brim.memory.kernels.scope import Call, Rule, Scope

AttentionKernel = Literal["flash", "efficient", "cudnn", "math"]
Shape = tuple[int, ...]

FLOAT = 4
WARP_TILE = 128


@dataclass(frozen=True)
class Attention:
    """One call of ``scaled_dot_product_attention``, as far as the choice looks at it. Shapes are [batch, heads,
    length, head dimension]; ``mask`` says whether there is one, ``grouped`` is ``enable_gqa``."""

    query: Shape
    key: Shape
    value: Shape
    dtype: torch.dtype
    mask: bool = False
    causal: bool = False
    dropout: float = 0.0
    needs_gradient: bool = False
    mask_needs_gradient: bool = False
    grouped: bool = False

    @property
    def half(self) -> bool:
        return self.dtype in HALVES


def prefers_cudnn(capability: tuple[int, int], torch_version: tuple[int, int]) -> bool:
    """Hopper and Blackwell servers put cuDNN first when it is newer than 9.15: the wheels of torch 2.11 are the first
    to bring that. torch 2.9 did so whatever the cuDNN. Elsewhere cuDNN stands behind the math kernel, so never runs."""
    return capability[0] in (9, 10) and (torch_version >= (2, 11) or torch_version == (2, 9))


def fused_shapes(call: Attention, groups: bool) -> bool:
    """What every fused kernel asks for: four dimensions, equal batches, fitting heads, no empty sequence."""
    shapes = (call.query, call.key, call.value)
    if any(len(shape) != 4 or shape[2] == 0 for shape in shapes) or len({shape[0] for shape in shapes}) > 1:
        return False
    heads = [shape[1] for shape in shapes]
    if call.grouped and groups:
        return heads[1] == heads[2] and heads[1] > 0 and heads[0] % heads[1] == 0
    return len(set(heads)) == 1


def fits_cudnn(capability: tuple[int, int], call: Attention) -> bool:
    if not call.half or call.mask_needs_gradient or not fused_shapes(call, groups=True):
        return False
    limit = 256 if capability == (9, 0) else 128
    dims = (call.query[3], call.value[3])
    if any(dim > limit or dim % 8 for dim in dims):
        return False
    return call.key[2] != 1 and not (call.query[2] == 1 and call.dropout > 0)


def fits_flash(capability: tuple[int, int], call: Attention) -> bool:
    if capability < (8, 0) or not call.half or call.mask or not fused_shapes(call, groups=True):
        return False
    dim = call.query[3]
    if dim > 256 or {call.key[3], call.value[3]} != {dim}:
        return False
    if call.causal and call.query[2] != call.key[2]:
        return False
    # Little shared memory (consumer Ampere, Ada, consumer Blackwell): no backward for the widest heads.
    narrow = (8, 6) <= capability <= (8, 9) or capability[0] == 12
    if narrow and call.needs_gradient:
        return dim <= 192 or (dim > 224 and call.dropout == 0)
    return True


def fits_efficient(capability: tuple[int, int], call: Attention) -> bool:
    known = (torch.float16, torch.float32) if capability < (8, 0) else (*HALVES, torch.float32)
    if call.dtype not in known or call.grouped or call.mask_needs_gradient or not fused_shapes(call, groups=False):
        return False
    # Tensor cores read 16 bytes at once: always from Ampere on, only halves on Volta and Turing.
    tensor_cores = capability >= (8, 0) or (capability >= (7, 0) and call.half)
    alignment = 16 // call.dtype.itemsize if tensor_cores else 1
    query_dim, value_dim = call.query[3], call.value[3]
    return query_dim == call.key[3] and query_dim > 0 and query_dim % alignment == 0 and value_dim % alignment == 0


def choose_attention_kernel(
    capability: tuple[int, int], call: Attention, torch_version: tuple[int, int] = (2, 11)
) -> AttentionKernel:
    """The kernel torch runs, with all of them enabled and deterministic algorithms off."""
    if prefers_cudnn(capability, torch_version) and fits_cudnn(capability, call):
        return "cudnn"
    if fits_flash(capability, call):
        return "flash"
    if fits_efficient(capability, call):
        return "efficient"
    return "math"


# Temporaries


def rows_are_plain(tensor: Tensor) -> bool:
    """Whether [batch, heads, length, dim] lies in memory as [batch, length, heads, dim]."""
    return tensor.transpose(1, 2).is_contiguous()


def copy_to_rows(scope: Scope, tensor: Tensor) -> int | None:
    return None if rows_are_plain(tensor) else scope.allocate(tensor.nbytes)


def cudnn_forward(call: Call, scope: Scope) -> None:
    """A workspace of 256 bytes, whatever the shape."""
    scope.workspace(256)


def cudnn_backward(call: Call, scope: Scope) -> None:
    """``(grad, query, key, value, out, ...)``. The workspace holds the query's gradient and one number per row in
    float32, and, where heads share keys, gradients of key and value for every query head."""
    gradient, query, key, value, out = call.args[:5]
    batch, heads, length, dim = query.shape
    scope.outputs(call, 0, 1, 2)
    # torch brings the gradient to the layout of the output.
    copy = scope.allocate(gradient.nbytes) if gradient.stride() != out.stride() else None
    size = batch * heads * length * (dim + 1) * FLOAT + 256
    if key.shape[1] != heads:
        size += batch * heads * key.shape[2] * (dim + value.shape[3]) * query.element_size()
    scope.workspace(size)
    scope.free(copy)


@dataclass(frozen=True)
class Tile:
    """Rows of queries and of keys that one block of the memory-efficient backward works on; whether the gradients of
    key and value stay in registers."""

    queries: int
    keys: int
    in_registers: bool


def efficient_tile(capability: tuple[int, int], dim: int, half: bool) -> Tile:
    """torch's list of compiled kernels (``cutlassB.h``), the first that is wide enough and fits shared memory."""
    if dim <= 64:
        return Tile(64, 64, in_registers=half)
    if half and dim <= 96 and capability in ((8, 6), (8, 9)):
        return Tile(128, 64, in_registers=True)
    large_memory = capability in ((8, 0), (8, 7)) or 9 <= capability[0] < 12
    if half and dim <= 128 and large_memory:
        return Tile(128, 128, in_registers=True)
    if large_memory or capability == (7, 0):
        return Tile(128, 64, in_registers=half and dim <= 128)
    return Tile(64, 64, in_registers=False)


def key_splits(batch_heads: int, keys: int, tile: Tile, staged: bool) -> int:
    """Over how many blocks the keys of one head are split: many only when there are few heads."""
    splits = 1 if batch_heads > 256 else divide_up(keys, tile.keys)
    return max(min(splits, 200 // batch_heads) if staged else splits, 1)


def efficient_workspace(capability: tuple[int, int], query: Tensor, key: Tensor, value: Tensor) -> int:
    """Tiles of the query's gradient with 16 bytes of locks each; in half precision with wide heads also staging for
    the gradients of key and value."""
    batch, heads, length, dim = query.shape
    half = query.dtype in HALVES
    tile = efficient_tile(capability, max(dim, value.shape[3]), half)
    tiles = divide_up(length, tile.queries) * divide_up(dim, tile.keys)
    size = tiles * (tile.queries * tile.keys * FLOAT + 16)
    if half and not tile.in_registers:
        splits = key_splits(batch * heads, key.shape[2], tile, staged=True)
        width = sum(divide_up(d, tile.queries) * tile.queries for d in (dim, value.shape[3]))
        size += splits * tile.keys * width * FLOAT
    return batch * heads * size


def efficient_delta(scope: Scope, query: Tensor, out: Tensor) -> int:
    """``(grad * out).sum(-1)`` in float32, then laid out with heads before rows; half kernels compute it themselves
    into a buffer of that size."""
    batch, heads, length, _ = query.shape
    size = batch * heads * length * FLOAT
    if query.dtype in HALVES:
        return scope.allocate(size)
    product = scope.allocate(out.numel() * FLOAT)
    sums = scope.allocate(size)
    if heads > 1 and length > 1:
        ordered = scope.allocate(size)
        scope.free(sums)
        sums = ordered
    scope.free(product)
    return sums


def efficient_backward(call: Call, scope: Scope) -> None:
    """``(grad, query, key, value, bias, out, ...)``."""
    gradient, query, key, value, _, out = call.args[:6]
    copy = copy_to_rows(scope, gradient)
    scope.outputs(call, 0, 1, 2, 3)
    delta = efficient_delta(scope, query, out)
    workspace = scope.allocate(efficient_workspace(call.card.capability, query, key, value))
    scope.free(delta, workspace, copy)


def rounded_head(dim: int) -> int:
    return divide_up(dim, 32) * 32 if dim <= 192 else 256


def flash_splits(batch_heads: int, query: Shape, keys: int, multiprocessors: int) -> int:
    """flash's ``num_splits_heuristic``: few rows of queries have their keys split, to fill the card."""
    block = 256 if query[3] <= 64 else 128 if query[3] <= 128 else 64
    key_blocks, slots = divide_up(keys, block), multiprocessors * 2
    work = batch_heads * divide_up(query[2], 64)
    if work >= 0.8 * slots:
        return 1
    candidates = [
        splits
        for splits in range(1, min(128, slots, key_blocks) + 1)
        if splits == 1 or divide_up(key_blocks, splits) != divide_up(key_blocks, splits - 1)
    ]
    waves = {splits: work * splits / slots for splits in candidates}
    efficiency = {splits: wave / ceil(wave) for splits, wave in waves.items()}
    return min(splits for splits in candidates if efficiency[splits] >= 0.85 * max(efficiency.values()))


def flash_forward(call: Call, scope: Scope) -> None:
    """``(query, key, value, dropout, ...)``. Where keys are split, each split has its output and log-sum in float32."""
    query, key = call.args[:2]
    batch, heads, length, dim = query.shape
    if call.argument(3, "dropout_p", 0.0) > 0 or min(query.numel(), key.numel()) == 0:
        scope.workspace(16)
        return
    splits = flash_splits(batch * heads, tuple(query.shape), key.shape[2], call.card.multiprocessors)
    if splits > 1:
        rows = splits * batch * heads * length
        sums = scope.allocate(rows * FLOAT)
        scope.workspace(rows * rounded_head(dim) * FLOAT)
        scope.free(sums)


def flash_backward(call: Call, scope: Scope) -> None:
    """``(grad, query, key, value, out, ...)``: one number per row and the query's gradient in float32, rows rounded up
    to 128 and the head to 32; where heads share keys, gradients of key and value for every query head."""
    gradient, query, key, _, out = call.args[:5]
    batch, heads, length, dim = query.shape
    held = [copy_to_rows(scope, gradient), copy_to_rows(scope, out)]
    scope.outputs(call, 0, 1, 2)
    rows = batch * heads * divide_up(length, WARP_TILE) * WARP_TILE
    held += [scope.allocate(rows * FLOAT), scope.allocate(rows * rounded_head(dim) * FLOAT)]
    if key.shape[1] != heads:
        expanded = batch * heads * key.shape[2] * dim * key.element_size()
        held += [scope.allocate(expanded), scope.allocate(expanded)]
    scope.free(*reversed(held))


RULES: dict[str, Rule] = {
    "aten._scaled_dot_product_cudnn_attention.default": cudnn_forward,
    "aten._scaled_dot_product_cudnn_attention_backward.default": cudnn_backward,
    "aten._scaled_dot_product_efficient_attention_backward.default": efficient_backward,
    "aten._scaled_dot_product_flash_attention.default": flash_forward,
    "aten._scaled_dot_product_flash_attention_backward.default": flash_backward,
}
