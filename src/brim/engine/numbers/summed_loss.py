"""A loss as a sum and a count, so that parts of a batch add up to the batch."""

from dataclasses import dataclass

import torch
from torch import Tensor

from brim.arguments.known import explained_call


@dataclass(frozen=True, slots=True)
class Loss:
    """A summed loss and what it was summed over: samples, tokens, weights.

    Return it from ``calculate_loss`` when samples weigh differently. The optimizer sees the sum of all totals over the
    sum of all counts, however the batch is split; a mean of means would not be the same.

    Args:
        total: the summed loss, a tensor with a gradient.
        count: what it was summed over, a number or a tensor on the same device.

    >>> import torch
    >>> tokens = torch.tensor([2.0, 4.0, 6.0])
    >>> Loss(tokens.sum(), 3).mean
    tensor(4.)
    """

    total: Tensor
    count: Tensor | float

    @property
    def mean(self) -> Tensor:
        """The total over the count; where nothing was counted, the total, so that no 0 / 0 reaches the weights."""
        return self.total / (self.count + (self.count == 0))


Loss.__init__ = explained_call(Loss.__init__)  # type: ignore[method-assign]


def counted(loss: Tensor | Loss, count: Tensor | float) -> Tensor | Loss:
    """A bare mean over ``count`` things as their sum; where there are none of them, nothing (the mean is 0 / 0)."""
    if isinstance(loss, Loss) or not isinstance(loss, Tensor) or loss.dim():
        return loss
    if isinstance(count, Tensor):
        return Loss(torch.where(count > 0, loss.float() * count, 0.0), count)
    return Loss(loss.float() * count if count else torch.zeros_like(loss), count)
