"""Gradients in 16 bits, added up over the micro-batches of a step in 32."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

SHORT = (torch.bfloat16, torch.float16)
ROUNDED_ALIKE = 2  # parts whose sum is rounded once, whoever adds them


class GradientSums:
    """Sums between the backward passes of a step, for parameters whose gradients have 16 bits; for others, nothing.

    A sum in bfloat16 has 8 bits: of a few hundred equal terms it takes in no more, and a batch in many micro-batches
    would be another step than the batch at once. So all passes but the last are summed up in single precision. The
    last one finds that sum, rounded, where autograd adds to it as ever: gradients are sent to other ranks while it
    runs. A step is thus rounded twice, however many micro-batches it has.

    >>> weight = nn.Parameter(torch.zeros(1, dtype=torch.bfloat16))
    >>> sums = GradientSums([weight], parts=513)
    >>> for part in range(513):
    ...     if part == 512:
    ...         sums.give()
    ...     weight.sum().backward()
    ...     if part < 512:
    ...         sums.take()
    >>> weight.grad.item()
    512.0
    """

    def __init__(self, parameters: Sequence[nn.Parameter], parts: int) -> None:
        is_needed = parts > ROUNDED_ALIKE and any(parameter.dtype in SHORT for parameter in parameters)
        self._parameters = [p for p in parameters if p.dtype in SHORT] if is_needed else []
        self._sums: dict[nn.Parameter, Tensor] = {}

    @torch.no_grad()
    def take(self) -> None:
        """After a backward pass: its gradients go into the sums, and their memory with them."""
        held = [p for p in self._parameters if p.grad is not None and p.grad.layout is torch.strided]
        known = [p for p in held if p in self._sums]
        if known:
            torch._foreach_add_([self._sums[p] for p in known], [gradient_of(p) for p in known])
        for parameter in held:
            if parameter not in self._sums:
                self._sums[parameter] = gradient_of(parameter).float()
            parameter.grad = None

    @property
    def sums(self) -> list[Tensor]:
        """What is summed up now."""
        return list(self._sums.values())

    @torch.no_grad()
    def give(self) -> None:
        """Before the last backward pass: the parameters have the sums."""
        for parameter in list(self._sums):
            parameter.grad = self._sums.pop(parameter).to(parameter.dtype)


def gradient_of(parameter: nn.Parameter) -> Tensor:
    """The gradient of a parameter that has one."""
    assert parameter.grad is not None
    return parameter.grad
