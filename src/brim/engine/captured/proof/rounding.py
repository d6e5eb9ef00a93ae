"""By how much two right ways to compute the same gradients may differ: what rounding explains, and no more.

A number that is rounded is off by a fifth of its type's epsilon on average (in the root of the mean square). Errors of
operations that follow each other add up as independent ones do, by the square root of their number; so do those of the
terms of a long sum. What is allowed is twice that, as a share of the norm.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from brim.engine.components.precision import Precision
from brim.float32_products import tf32_in_cudnn, tf32_in_products

SAFETY = 2.0
MEAN_ERROR = 0.2  # of epsilon
TERMS = 1 << 14  # of a sum that kernels add up in any order: the rows of a batch, in single precision
LEAST_OPERATIONS = 16
MOST_NODES = 100_000
EPSILONS = {"fp32": 2.0**-23, "tf32": 2.0**-10, "fp16": 2.0**-10, "bf16": 2.0**-7}
SHORT = {torch.bfloat16: "bf16", torch.float16: "fp16"}
IN_TF32 = ("Convolution", "CudnnRnn", "Cudnn")  # unless told otherwise, cuDNN computes these in TF32


@dataclass(frozen=True)
class Rounding:
    """In which numbers a step computes, and how many operations follow each other in it."""

    numbers: str
    operations: int

    @property
    def share(self) -> float:
        """Of its norm, by which a gradient may differ.

        >>> f"{Rounding('fp32', 300).share:.0e}, {Rounding('bf16', 300).share:.0e}"
        '7e-06, 5e-02'
        """
        chain = EPSILONS[self.numbers] * math.sqrt(self.operations)
        return SAFETY * MEAN_ERROR * (chain + EPSILONS["fp32"] * math.sqrt(TERMS))

    def __str__(self) -> str:
        return f"{self.numbers} rounding allows {self.share:.0e}"


def rounding_of(model: nn.Module, precision: Precision, loss: Tensor | None = None) -> Rounding:
    """That of a step; ``loss``, where it is at hand with its autograd graph, shows the operations."""
    length, kinds = (0, set[str]()) if loss is None else chain_of(loss)
    kinds |= {type(module).__name__ for module in model.modules()}
    leaves = sum(1 for module in model.modules() if next(module.children(), None) is None)
    # Parameters in short formats are computed with in them, whatever the precision is called.
    short = {SHORT[p.dtype] for p in model.parameters() if p.dtype in SHORT}
    names = {"fp32" if precision.dtype is None else SHORT[precision.dtype], *short, *_tensor_core_types(kinds)}
    coarsest = max(names, key=lambda name: EPSILONS[name])
    return Rounding(coarsest, max(2 * length, leaves, LEAST_OPERATIONS))  # backwards there are as many as forwards


def chain_of(loss: Tensor) -> tuple[int, set[str]]:
    """How many operations follow each other at most in the autograd graph of a loss, and what they are called."""
    depths: dict[object, int] = {}
    kinds: set[str] = set()
    to_visit: list[tuple[object, bool]] = [] if loss.grad_fn is None else [(loss.grad_fn, False)]
    while to_visit and len(depths) < MOST_NODES:
        node, are_parents_known = to_visit.pop()
        if node in depths:
            continue
        parents = [parent for parent, _ in getattr(node, "next_functions", ()) if parent is not None]
        if are_parents_known:
            depths[node] = 1 + max((depths.get(parent, 0) for parent in parents), default=0)
            kinds.add(type(node).__name__)
            continue
        to_visit.append((node, True))
        to_visit += [(parent, False) for parent in parents if parent not in depths]
    return max(depths.values(), default=0), kinds


def _tensor_core_types(kinds: set[str]) -> set[str]:
    """Whether single precision is in truth TF32 in the matrix products, or in what cuDNN computes."""
    if not torch.cuda.is_available():
        return set()
    uses_cudnn = any(kind.startswith((*IN_TF32, "Conv", "LSTM", "GRU", "RNN")) for kind in kinds)
    return {"tf32"} if tf32_in_products() or (tf32_in_cudnn() and uses_cudnn) else set()
