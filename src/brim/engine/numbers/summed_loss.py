"""A loss as a sum and a count, so that parts of a batch add up to the batch."""

from dataclasses import dataclass

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
