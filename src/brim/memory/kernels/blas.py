"""cuBLAS keeps a workspace for each handle, and takes it from torch's allocator at the first matrix product.

Measured on the H200 with torch 2.11: 32 MiB at the first product of the forward pass, 32 MiB more at the first one of
the backward pass (which runs on a thread, and so a handle, of its own), and 1 MiB for cuBLASLt at the first product
with a fused bias, again once in each thread. They are never given back.
"""

from typing import Any

from brim.hardware.cards import Card
from brim.memory.kernels.grouped import is_cutlass

MIB = 1 << 20
HOPPER_WORKSPACE = 32 * MIB
OLDER_WORKSPACE = 8_519_680  # :4096:2:16:8
FUSED_BIAS_WORKSPACE = MIB
PRODUCTS = {
    "aten.mm.default", "aten.bmm.default", "aten.addmm.default", "aten.baddbmm.default", "aten.addbmm.default",
    "aten.addmv.default", "aten.mv.default", "aten.dot.default", "aten.vdot.default", "aten._addmm_activation.default",
    "aten.addmm.out", "aten.mm.out", "aten.bmm.out", "aten.addr.default", "aten._grouped_mm.default",
}  # fmt: skip


class BlasWorkspaces:
    """Which workspaces a program has not asked for yet."""

    def __init__(self, card: Card, runtime: tuple[int, int]) -> None:
        self.size = HOPPER_WORKSPACE if card.capability[0] >= 9 else OLDER_WORKSPACE
        self._card = card
        self._have: set[tuple[str, bool]] = set()

    def asked_for(self, name: str, args: tuple[Any, ...], in_backward: bool) -> list[int]:
        """Bytes of the workspaces that this call is the first to need."""
        if name not in PRODUCTS or (name == "aten._grouped_mm.default" and is_cutlass(self._card, args[0])):
            return []
        wanted = [("product", self.size)]
        if name == "aten.addmm.default" and _fuses_bias(args):
            wanted.append(("fused bias", FUSED_BIAS_WORKSPACE))
        new = [(kind, size) for kind, size in wanted if (kind, in_backward) not in self._have]
        self._have.update((kind, in_backward) for kind, _ in new)
        return [size for _, size in new]


def _fuses_bias(args: tuple[Any, ...]) -> bool:
    """torch hands a product with a bias vector to cuBLASLt, unless one side is a single column or row."""
    bias, _, right = args[:3]
    return bool(bias.dim() == 1 and right.shape[0] > 1 and right.shape[1] > 1)
