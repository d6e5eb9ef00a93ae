"""Which weights logits are asked of: torch counts what is written into a tensor, but not what fused optimizers do."""

from torch import Tensor

_steps = 0


def note_optimizer_step() -> None:
    """The weights are others from now on."""
    global _steps
    _steps += 1


def moment_of(*tensors: Tensor | None) -> tuple[int, ...]:
    """The same as long as nothing was written into these tensors.

    >>> import torch
    >>> weight = torch.zeros(2)
    >>> before = moment_of(weight)
    >>> before == moment_of(weight), before == moment_of(weight.add_(1))
    (True, False)
    """
    counted = (tensor for tensor in tensors if tensor is not None and not tensor.is_inference())
    return _steps, *(tensor._version for tensor in counted)
