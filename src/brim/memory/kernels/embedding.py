"""What embedding tables allocate inside their kernels, and what ``index_put`` does when it accumulates.

The gradient of a table is summed over sorted indices: CUB sorts them, runs of equal indices are cut into pieces of ten
rows, and each piece is summed into a buffer of its own. How many pieces there can be ATen bounds from the shapes, so
nothing here depends on the data. Exact (peak inside the call, within 1 KiB or 0.5 %) in all records of an H200 with
torch 2.11 (2026-11-15): 138 embedding gradients, 42 of embedding bags, 42 embedding bags, 122 ``index_put``, 20
embeddings. Up to 3072 lookups a table's gradient needs nothing; that of bags always sorts.

Not measured: ``index_put`` that accumulates over several index tensors (their coordinates are counted as one).
"""

from math import ceil, prod

import torch
from torch import Tensor

from brim.memory.kernels.scope import Call, Rule, Scope
from brim.memory.kernels.sorting import ALIGNMENT, INDEX, aligned, is_mask, radix_sort_bytes, take_hits

ROWS_PER_PIECE = 10  # ATen's NROWS_PER_THREAD
DIRECT_LOOKUPS = 3072  # up to here embedding_dense_backward_cuda uses one direct kernel
WARP = 32
MOST_THREADS = 1024
ATOMIC_BLOCKS_PER_MULTIPROCESSOR = 4  # ATen's MAX_ATOMIC_ACCUM_BLOCKS_PER_SM
SCAN_SCRATCH = 1279  # of the scans that count how often an index comes: at least, and a few KiB at most
RUN_TILE, OFFSET_TILE = 7168, 1408  # lookups a thread block scans, to find runs and to add up pieces


def _scan_bytes(count: int, tile: int) -> int:
    """CUB keeps the state of every tile, and of one warp more."""
    return aligned((ceil(count / tile) + WARP) * 24) + ALIGNMENT - 1


def _adds_atomically(runs: int, pieces: int, width: int, multiprocessors: int) -> bool:
    """ATen's choice for few rows that are looked up often: too few blocks would sum too many pieces each."""
    warped = ceil(width / WARP) * WARP
    blocks = ceil(runs * warped / min(warped, MOST_THREADS))
    return blocks < multiprocessors * ATOMIC_BLOCKS_PER_MULTIPROCESSOR and pieces > blocks * 4


def _sum_pieces(grad: Tensor, pieces: int, rows: int, atomic: bool, index: int, scope: Scope) -> None:
    """The sums are made in float32 for half precision."""
    width, element = grad.shape[-1], max(4, grad.element_size())
    if not atomic:
        scope.workspace(pieces * width * element)
        return
    owners = scope.allocate(pieces * index)
    if grad.element_size() < 4:
        scope.workspace(rows * width * element)
    scope.free(owners)


def _sum_runs(call: Call, grad: Tensor, indices: Tensor, rows: int, bags: bool, scope: Scope) -> None:
    """embedding_backward_cuda_kernel."""
    count, index = indices.numel(), indices.element_size()
    scope.output(0)
    starts, found = scope.allocate(count * index), scope.allocate(INDEX)
    keys = scope.allocate(count * index)
    scope.workspace(_scan_bytes(count, RUN_TILE))
    scope.free(keys)
    runs = min(count, rows)
    per_run, offsets = scope.allocate(runs * index), scope.allocate(runs * index)
    scope.workspace(_scan_bytes(runs, OFFSET_TILE))
    total = scope.allocate(INDEX)
    pieces = count // ROWS_PER_PIECE + runs
    piece_starts = scope.allocate(pieces * index)
    atomic = not bags and _adds_atomically(runs, pieces, grad.shape[-1], call.card.multiprocessors)
    _sum_pieces(grad, pieces, rows, atomic, index, scope)
    scope.free(piece_starts, total, offsets, per_run, found, starts)


def _sort_and_sum(call: Call, grad: Tensor, indices: Tensor, rows: int, by_frequency: bool, scope: Scope) -> None:
    bags = "bag" in call.operator
    index, count = indices.element_size(), indices.numel()
    ordered, origins, counting = (scope.allocate(count * index) for _ in range(3))
    scope.workspace(radix_sort_bytes(count, index, index))
    scope.free(counting)
    frequencies = None
    if by_frequency:
        frequencies = scope.allocate(count * index)
        scope.workspace(SCAN_SCRATCH)
        scope.workspace(SCAN_SCRATCH)
    _sum_runs(call, grad, indices, rows, bags, scope)
    scope.free(frequencies, origins, ordered)


def embedding(call: Call, scope: Scope) -> None:
    """index_select copies an index that is not contiguous, such as expanded positions."""
    copied = scope.copy(call.args[1])
    scope.output(0)
    scope.free(copied)


def embedding_dense_backward(call: Call, scope: Scope) -> None:
    grad, indices = call.args[0], call.args[1]
    rows, by_frequency = int(call.args[2]), bool(call.argument(4, "scale_grad_by_freq", False))
    copies = scope.copy(grad), scope.copy(indices)
    if indices.numel() == 0 or (indices.numel() <= DIRECT_LOOKUPS and not by_frequency):
        scope.output(0)
    else:
        _sort_and_sum(call, grad, indices, rows, by_frequency, scope)
    scope.free(*copies)


def embedding_bag(call: Call, scope: Scope) -> None:
    """bag_size, offset2bag, output and, for the maximum, its indices."""
    for place in (2, 1, 0, 3):
        scope.output(place)


def _bag_gradient(call: Call, place: int, scope: Scope) -> None:
    """The two operators differ in what stands before num_weights (at ``place``), scale_grad_by_freq and mode."""
    grad, indices = call.args[0], call.args[1]
    rows, by_frequency = int(call.args[place]), bool(call.args[place + 1])
    takes_maximum = call.args[place + 2] == 2
    copied = scope.copy(grad)
    if takes_maximum or indices.numel() == 0:
        scope.output(0)
    else:
        _sort_and_sum(call, grad, indices, rows, by_frequency, scope)
    scope.free(copied)


def embedding_bag_backward(call: Call, scope: Scope) -> None:
    _bag_gradient(call, 6, scope)


def embedding_bag_dense_backward(call: Call, scope: Scope) -> None:
    _bag_gradient(call, 5, scope)


def _accumulate(target: Tensor, indices: list[Tensor | None], value: Tensor, scope: Scope) -> None:
    """index_put_with_sort_kernel: the indices are checked, made one number each, and sorted on the bits they need."""
    given = [index for index in indices if index is not None]
    lookups = prod(torch.broadcast_shapes(*(index.shape for index in given)))  # type: ignore[no-untyped-call]
    places = [place for place, index in enumerate(indices) if index is not None]
    rows = prod(target.shape[place] for place in places)
    for _ in range(2):  # least and greatest index, each compared with its bound
        extreme = scope.allocate(INDEX)
        scope.workspace(1)
        scope.free(extreme)
    linear = scope.allocate(lookups * INDEX)
    scope.workspace(lookups * INDEX)
    held = [linear]
    size = lookups * (target.numel() // max(1, rows)) * target.element_size()
    if not value.is_contiguous() or value.nbytes != size:
        held.append(scope.allocate(size))
    held += [scope.allocate(lookups * INDEX) for _ in range(3)]
    scope.workspace(radix_sort_bytes(lookups, INDEX, INDEX, max(1, (rows - 1).bit_length())))
    scope.free(*reversed(held))


def index_put(call: Call, scope: Scope) -> None:
    """Out of place the result, a copy, comes first. Masks are turned into coordinates."""
    target, indices, value = call.args[0], list(call.args[1]), call.args[2]
    if not call.operator.split(".")[-2].endswith("_"):
        scope.output(0)
    masks = [index for index in indices if is_mask(index)]
    if masks:
        scope.free(*[take_hits(mask, None, scope) for mask in masks])
    elif call.argument(3, "accumulate", False) and target.numel() and any(i is not None for i in indices):
        _accumulate(target, indices, value, scope)


RULES: dict[str, Rule] = {
    "aten.embedding.default": embedding,
    "aten.embedding_dense_backward.default": embedding_dense_backward,
    "aten._embedding_bag.default": embedding_bag,
    "aten._embedding_bag_forward_only.default": embedding_bag,
    "aten._embedding_bag_backward.default": embedding_bag_backward,
    "aten._embedding_bag_dense_backward.default": embedding_bag_dense_backward,
    "aten.index_put.default": index_put,
    "aten.index_put_.default": index_put,
    "aten._unsafe_index_put.default": index_put,
    "aten._index_put_impl_.default": index_put,
}
