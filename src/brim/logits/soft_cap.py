"""What some models do to their logits before the softmax: a factor, and a smooth bound."""

import torch
from torch import Tensor


def soft_capped(logits: Tensor, scale: float, cap: float | None) -> Tensor:
    """Logits times ``scale``, bent so that they stay within ``cap``; out of place.

    >>> soft_capped(torch.tensor([0.0, 1e9]), 2.0, 30.0)
    tensor([ 0., 30.])
    """
    if cap is not None:
        return cap * torch.tanh(logits * (scale / cap))
    return logits if scale == 1.0 else logits * scale
