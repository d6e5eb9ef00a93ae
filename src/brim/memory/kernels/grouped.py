"""Grouped matrix products: mixture-of-experts layers that multiply the tokens of each expert in one call.

From torch's sources: on Hopper and the data centre Blackwells a product in bf16 is CUTLASS's (``GroupMM.cu``), which
takes one small buffer with the pointers, strides and shapes of all groups, and a workspace with the tensor maps of
every multiprocessor. Everything else multiplies group by group with cuBLAS, into slices of the output, and takes
nothing but cuBLAS's own workspace. Not measured.
"""

import torch
from torch import Tensor

from brim.hardware.cards import Card
from brim.memory.kernels.scope import Call, Rule, Scope

POINTERS, STRIDES, PROBLEM = 3 * 8, 3 * 8, 12  # bytes of a group: three matrices, and one shape
SCALE_POINTERS = 2 * 8
TENSOR_MAP = 128  # bytes of a descriptor of Hopper's copy engine
MAPS_OF_SMALL_TILES, MAPS_OF_LARGE_TILES = 5, 4  # of both factors, the addend, and the output of each warp group
SMALL = 128  # rows or columns of a group up to which the small tiles are taken
CUTLASS = ((9, 0), (10, 0), (10, 3))


def is_cutlass(card: Card, left: Tensor) -> bool:
    """Whether the product is one kernel: else it is one product of cuBLAS for each group."""
    return card.capability in CUTLASS and left.dtype in (torch.bfloat16, torch.float8_e4m3fn)


def grouped_mm(call: Call, scope: Scope) -> None:
    """``aten._grouped_mm`` and ``aten._scaled_grouped_mm``."""
    scope.output(0)
    left, right = call.args[:2]
    if not is_cutlass(call.card, left):
        return
    offsets = call.kwargs.get("offs") if "scaled" in call.operator else call.argument(2, "offs")
    if "scaled" in call.operator and offsets is None and len(call.args) > 4:
        offsets = call.args[4]
    groups = _groups(left, right, offsets)
    aligned = groups + groups % 2
    scales = SCALE_POINTERS * aligned if "scaled" in call.operator else 0
    arguments = scope.allocate(aligned * POINTERS + scales + groups * (STRIDES + PROBLEM))
    maps = MAPS_OF_SMALL_TILES if _is_small(left, right, groups) else MAPS_OF_LARGE_TILES
    workspace = scope.allocate(maps * TENSOR_MAP * call.card.multiprocessors)
    scope.free(workspace, arguments)


def _groups(left: Tensor, right: Tensor, offsets: Tensor | None) -> int:
    if left.dim() == 2 and right.dim() == 2:
        return 1 if offsets is None else offsets.shape[0]
    return int(right.shape[0] if left.dim() == 2 else left.shape[0])


def _is_small(left: Tensor, right: Tensor, groups: int) -> bool:
    """As torch chooses the tiles, taking the groups for equally large."""
    rows, columns = left.shape[-2], right.shape[-1]
    if left.dim() == 2 and right.dim() == 3:
        rows //= max(1, groups)
    elif left.dim() == 3 and right.dim() == 2:
        columns //= max(1, groups)
    return rows <= SMALL or columns <= SMALL


RULES: dict[str, Rule] = {"aten._grouped_mm.default": grouped_mm, "aten._scaled_grouped_mm.default": grouped_mm}
