"""What CUDA kernels allocate for themselves: one rule an operator, see `scope`.

In: the call of an operator on fake tensors, and a card. Out: the storages that its kernel would take beside its
results.
"""

from brim.memory.kernels import (
    attention,
    convolution,
    elementwise,
    embedding,
    grouped,
    losses,
    normalization,
    reduction,
    sorting,
)
from brim.memory.kernels.scope import Call, Rule, Scope

RULES: dict[str, Rule] = {
    **elementwise.RULES,
    **convolution.RULES,
    **embedding.RULES,
    **grouped.RULES,
    **sorting.RULES,
    **reduction.RULES,
    **normalization.RULES,
    **losses.RULES,
    **attention.RULES,
}

__all__ = ["RULES", "Call", "Rule", "Scope"]
