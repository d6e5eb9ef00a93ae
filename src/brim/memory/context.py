"""What a process takes of the card beyond what torch reserves: the CUDA context, and the libraries it loads.

Measured on the H200 (driver 580, CUDA 13.0, torch 2.11, 2026-11-15): 610 MiB once any kernel has run, 132 more when
cuBLAS starts, 20 more when cuDNN does: 630 to 762 MiB in all, the same in every one of more than 200 training runs that
use the same libraries. A context holds, among other things, a stack for every thread that can run at once, so on other
cards it is taken to follow the number of multiprocessors; nothing of that was measured here, and the band says so.
"""

from dataclasses import dataclass

from brim.hardware.cards import Card
from brim.memory.trace.trace import Trace

MIB = 1 << 20
BARE = 610 * MIB
CUBLAS = 132 * MIB
CUDNN = 20 * MIB
H200_MULTIPROCESSORS = 132
FIXED_SHARE = 0.25  # of the bare context: what does not follow the number of multiprocessors
UNCERTAIN = 0.35  # on cards that were not measured


@dataclass(frozen=True)
class Context:
    """Bytes, with the band in which the truth is expected."""

    size: int
    low: int
    high: int


def context_of(card: Card, uses_cublas: bool, uses_cudnn: bool) -> Context:
    """The context of a training run on a card."""
    scale = FIXED_SHARE + (1 - FIXED_SHARE) * card.multiprocessors / H200_MULTIPROCESSORS
    size = int(BARE * scale) + uses_cublas * CUBLAS + uses_cudnn * CUDNN
    if card.measured:
        return Context(size, size, size)
    return Context(size, int(size * (1 - UNCERTAIN)), int(size * (1 + UNCERTAIN)))


def libraries_of(trace: Trace) -> tuple[bool, bool]:
    """Whether a traced run starts cuBLAS, and whether it starts cuDNN."""
    operators = {storage.operator for storage in trace.storages}
    cublas = any(operator.startswith(("aten.mm", "aten.addmm", "aten.bmm", "aten.baddbmm")) for operator in operators)
    cudnn = any("convolution" in operator or "cudnn" in operator for operator in operators)
    return cublas, cudnn
