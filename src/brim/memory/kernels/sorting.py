"""What sorting, selecting and scanning kernels allocate inside: sort, topk, unique, nonzero, masks, randperm, median,
cumsum, roll, histc.

Most of it is the scratch of CUB's radix sort, worked out from the data and exact there (:func:`radix_sort_bytes`). All
figures: H200, torch 2.11, 2026-11-15, peak inside the call against the measured peak:

* exact (within 1 KiB or 0.5 %) in all records: sort, topk, median, randperm, unique, cumsum, roll, histc, nonzero and
  bool masks once the number of hits is known;
* upper bound: nonzero and bool masks when it is not (every element a hit, which is twice the truth for random masks);
* after ATen's source, without a measurement: sorting 2 to 127 rows longer than 4096, unique with inverse or counts, and
  radix sorts of types other than int32, int64 and float32 (their tile size is taken from those).
"""

from math import ceil, log, log2
from typing import Any

from torch import Tensor

from brim.memory.kernels.scope import Call, Rule, Scope

INDEX = 8  # bytes of an int64 index
ALIGNMENT = 256  # CUB aligns every piece of its scratch, and its start
RADIX = 256  # digits of 8 bits
SMALL_SORT = 4096  # ATen sorts rows up to this length in shared memory, without scratch
FULL_SORT_ROWS = 128  # from so many rows on, ATen uses CUB's segmented sort
ALONE_SORT = 1_000_000  # a row of this length fills the card alone: rows are sorted one after another
SCAN_TILE = 4096
ONE_BLOCK_REDUCTION = 131_072  # up to here a reduction to one number needs no scratch
REDUCTION_SCRATCH = 21_503  # of the count of hits, independent of the number of elements


def aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def radix_sort_bytes(count: int, key: int, value: int = 0, bits: int | None = None) -> int:
    """CUB's scratch for a radix sort of ``count`` keys (and values), in sizes of bytes: 8 bits a pass, and a second
    buffer for keys and values unless there is only one pass."""
    widest = max(key, value)
    if count <= (2048 if widest == 8 else 4096):  # one thread block does it all
        return 1
    passes = ceil((8 * key if bits is None else bits) / 8)
    tile = 384 * (12 if key == 8 else 14 if value else 19)
    pieces = [passes * RADIX * 8, ceil(count / tile) * RADIX * 4, passes * 4]
    if passes > 1:
        pieces += [count * key, count * value]
    return sum(aligned(piece) for piece in pieces) + ALIGNMENT - 1


def scan_bytes(count: int) -> int:
    """CUB's scratch for a scan or a selection: a state per tile."""
    return max(1023, aligned((ceil(count / SCAN_TILE) + 32) * 8) + 511)


def _sort_rows(rows: int, length: int, element: int, scope: Scope) -> None:
    """The scratch of sorting ``rows`` rows with their indices."""
    total = rows * length
    if length <= SMALL_SORT:
        scope.workspace(length * INDEX)  # the indices of one row, to be repeated
    elif rows == 1 or length >= ALONE_SORT:
        indices = scope.allocate(length * INDEX)
        scope.workspace(radix_sort_bytes(length, element, INDEX))
        scope.free(indices)
    elif rows < FULL_SORT_ROWS:
        pairs = scope.allocate(total * INDEX), scope.allocate(total * INDEX)
        keys = scope.allocate(total * element)
        scope.workspace(radix_sort_bytes(total, element, INDEX))
        scope.free(keys)
        scope.workspace(radix_sort_bytes(total, INDEX, bits=max(1, ceil(log2(rows)))))
        scope.free(*pairs)
    else:
        indices = scope.allocate(total * INDEX)
        scope.workspace(aligned(total * element) + aligned(total * INDEX) + ALIGNMENT - 1)
        scope.free(indices)


def _sort(values: Tensor, dim: int, scope: Scope) -> None:
    length = values.shape[dim] if values.dim() else 1
    if values.numel() == 0:
        return
    rows = values.numel() // length
    copies: tuple[int, ...] = ()
    last = values.dim() == 0 or dim % values.dim() == values.dim() - 1
    if length > SMALL_SORT and not (last and values.is_contiguous()):
        # CUB wants rows: a copy of the input, and values and indices to be copied back
        copies = tuple(scope.allocate(values.numel() * size) for size in (values.element_size(),) * 2 + (INDEX,))
    _sort_rows(rows, length, values.element_size(), scope)
    scope.free(*reversed(copies))


def sort(call: Call, scope: Scope) -> None:
    scope.output(0)
    scope.output(1)
    _sort(call.args[0], call.argument(1, "dim", -1), scope)


def stable_sort(call: Call, scope: Scope) -> None:
    scope.output(0)
    scope.output(1)
    _sort(call.args[0], call.kwargs.get("dim", -1), scope)


# ATen's table (should_use_multiblock): up to so many rows, several thread blocks share a row from this length on.
TOPK_SHARED_ROWS = ((20, 20_000), (40, 10_000), (80, 8_000), (199, 5_000), (799, 3_000), (4_000, 800))
TOPK_THREADS = 256
TOPK_BLOCKS_PER_MULTIPROCESSOR = 6  # by registers: 65536 / (40 x 256)


def _topk_blocks(rows: int, length: int, multiprocessors: int) -> int:
    threads = multiprocessors * TOPK_BLOCKS_PER_MULTIPROCESSOR * TOPK_THREADS
    items = min(64, max(4, ceil(rows * length / threads)))
    return ceil(length / (items * TOPK_THREADS))


def topk(call: Call, scope: Scope) -> None:
    values: Tensor = call.args[0]
    scope.output(0)
    scope.output(1)
    copied = scope.copy(values)
    length = values.shape[call.argument(2, "dim", -1)] if values.dim() else 1
    rows = values.numel() // max(1, length)
    least = next((least for most, least in TOPK_SHARED_ROWS if rows <= most), 400)
    if length >= least:
        blocks = rows * _topk_blocks(rows, length, call.card.multiprocessors)
        digits = (blocks * RADIX * 2, rows * RADIX * 4)  # counts of a block in 16 bits, sums of a row in 32
        held = [scope.allocate(size) for size in (rows * 4, rows * 8, rows * 8, *digits, blocks * 4, blocks * 4)]
        scope.workspace(scan_bytes(blocks) + ALIGNMENT)
        scope.workspace(scan_bytes(blocks) + ALIGNMENT)
        scope.free(*reversed(held))
    scope.free(copied)


def _known(size: Any, bound: int) -> int:
    """A size that data decides: as given where it is a number, else the bound."""
    return min(size, bound) if isinstance(size, int) else bound


def take_hits(mask: Tensor, hits: int | None, scope: Scope, output: int | None = None) -> int | None:
    """Finding the hits of a mask: their coordinates are ``output``, or a temporary whose number is the answer."""
    copied = scope.copy(mask)
    counter = scope.allocate(4)
    scope.workspace(REDUCTION_SCRATCH if mask.numel() > SCAN_TILE else 1)
    coordinates = None
    if output is None:
        coordinates = scope.allocate((mask.numel() if hits is None else hits) * mask.dim() * INDEX)
    else:
        scope.output(output)
    scope.workspace(scan_bytes(mask.numel()))
    scope.free(counter, copied)
    return coordinates


def nonzero(call: Call, scope: Scope) -> None:
    take_hits(call.args[0], None, scope, output=0)


def is_mask(index: object) -> bool:
    return isinstance(index, Tensor) and str(index.dtype) in ("torch.bool", "torch.uint8")


def index(call: Call, scope: Scope) -> None:
    """Bool masks are turned into coordinates first."""
    output, held = call.outputs[0], []
    for place, mask in enumerate(call.args[1]):
        if is_mask(mask):  # its hits are the dimension of the output where the mask stands
            known = output.shape[place] if output is not None and place < output.dim() else None
            held.append(take_hits(mask, _known(known, mask.numel()), scope))
    scope.output(0)
    scope.free(*held)


def masked_select(call: Call, scope: Scope) -> None:
    mask: Tensor = call.args[1]
    output = call.outputs[0]
    hits = _known(output.shape[0] if output is not None else None, mask.numel())
    held = take_hits(mask, hits, scope)
    scope.output(0)
    scope.free(held)


def unique(call: Call, scope: Scope) -> None:
    """The output is made as long as the input and cut afterwards; its storage stays that long, and a temporary stands
    for the part the shape does not show."""
    values: Tensor = call.args[0]
    element, count = values.element_size(), values.numel()
    copied = scope.copy(values)
    pairs = bool(call.argument(2, "return_inverse", False) or call.argument(3, "return_counts", False))
    indices = [scope.allocate(count * INDEX) for _ in range(2 if pairs else 0)]
    ordered = scope.allocate(values.nbytes)
    scope.workspace(radix_sort_bytes(count, element, INDEX if pairs else 0))
    for place, output in enumerate(call.outputs):
        if output is not None:
            scope.output(place)
    shown = call.outputs[0]
    known = _known(shown.shape[0], count) if shown is not None and shown.dim() else count
    if known < count:
        scope.allocate((count - known) * element)
    counter = scope.allocate(INDEX)
    scope.workspace(scan_bytes(count))
    scope.free(counter, ordered, *indices, copied)


def randperm(call: Call, scope: Scope) -> None:
    """Random keys are sorted; as many bits of them as make repeated keys unlikely (ATen's note on randperm)."""
    count = int(call.args[0])
    scope.output(0)
    scope.workspace(8)
    if count == 0:
        return
    bits = min(64, ceil(log2(count - (6 * count * count + 1) / (log(0.9) * 12))))
    key = 4 if bits <= 32 else 8
    held = [scope.allocate(count * size) for size in (INDEX, key, key)]
    scope.workspace(radix_sort_bytes(count, key, INDEX, bits))
    scope.free(*reversed(held))


def median(call: Call, scope: Scope) -> None:
    """The median of everything sorts everything."""
    values: Tensor = call.args[0]
    count = values.numel()
    copied = scope.copy(values)
    ordered, indices = scope.allocate(values.nbytes), scope.allocate(count * INDEX)
    if count:
        _sort_rows(1, count, values.element_size(), scope)
    scope.free(indices, copied)
    flag = scope.allocate(1)
    scope.output(0)
    scope.free(flag, ordered)


def cumulative(call: Call, scope: Scope) -> None:
    """A whole tensor in one scan goes to CUB; what is not contiguous, or of another type, is copied first."""
    values, output = call.args[0], call.outputs[0]
    scope.output(0)
    if output is None or not values.numel():
        return
    copied = None
    if not values.is_contiguous() or values.dtype != output.dtype:
        copied = scope.allocate(output.nbytes)
    elif values.dim() == 0 or values.shape[call.argument(1, "dim")] == values.numel():
        scope.workspace(scan_bytes(0))
    scope.free(copied)


def roll(call: Call, scope: Scope) -> None:
    """One dimension after another, each into a tensor of its own."""
    values: Tensor = call.args[0]
    dims = call.argument(2, "dims", ())
    held = scope.copy(values)
    for _ in range(len(dims) - 1 if isinstance(dims, (list, tuple)) else 0):
        rolled = scope.allocate(values.nbytes)
        scope.free(held)
        held = rolled
    scope.output(0)
    scope.free(held)


def histc(call: Call, scope: Scope) -> None:
    """Least and greatest value first, each over a copy unless contiguous, with a little scratch to reduce with."""
    scope.output(0)
    for _ in range(2):
        extreme = scope.allocate(call.args[0].element_size())
        copied = scope.copy(call.args[0])
        if call.args[0].numel() > ONE_BLOCK_REDUCTION:
            scope.workspace(min(call.args[0].numel() // 2048, 16 * call.card.multiprocessors))
        scope.free(copied, extreme)


RULES: dict[str, Rule] = {
    "aten.sort.default": sort,
    "aten.sort.stable": stable_sort,
    "aten.topk.default": topk,
    "aten.nonzero.default": nonzero,
    "aten.index.Tensor": index,
    "aten.masked_select.default": masked_select,
    "aten._unique2.default": unique,
    "aten.randperm.default": randperm,
    "aten.median.default": median,
    "aten.cumsum.default": cumulative,
    "aten.cumprod.default": cumulative,
    "aten.roll.default": roll,
    "aten.histc.default": histc,
}
