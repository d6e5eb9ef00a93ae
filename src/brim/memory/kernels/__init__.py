"""What CUDA kernels allocate for themselves: one rule an operator, see `scope`."""

from brim.memory.kernels import attention, convolution, embedding, normalization, reduction, sorting
from brim.memory.kernels.scope import Call, Rule, Scope

RULES: dict[str, Rule] = {
    **convolution.RULES,
    **embedding.RULES,
    **sorting.RULES,
    **reduction.RULES,
    **normalization.RULES,
    **attention.RULES,
}

__all__ = ["RULES", "Call", "Rule", "Scope"]
