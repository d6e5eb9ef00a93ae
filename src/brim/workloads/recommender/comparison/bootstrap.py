"""How sure a mean over users is: intervals from resampling them."""

from dataclasses import dataclass

import torch
from torch import Tensor

RESAMPLES = 2000
SHARE = 0.95
AT_ONCE = 200  # resamples whose draws are in memory together


@dataclass(frozen=True)
class Interval:
    """A mean, and the range that holds 95 % of the means of resampled users."""

    mean: float
    low: float
    high: float


def mean_interval(values: Tensor, seed: int = 0) -> Interval:
    """The mean of one value a user.

    >>> mean_interval(torch.tensor([1.0, 1.0, 1.0]))
    Interval(mean=1.0, low=1.0, high=1.0)
    """
    generator = torch.Generator("cpu").manual_seed(seed)
    values = values.double()
    means = []
    for _ in range(RESAMPLES // AT_ONCE):
        drawn = torch.randint(len(values), (AT_ONCE, len(values)), generator=generator)
        means.append(values[drawn].mean(1))
    edges = torch.tensor([(1 - SHARE) / 2, (1 + SHARE) / 2], dtype=torch.float64)
    low, high = torch.cat(means).quantile(edges).tolist()
    return Interval(float(values.mean()), low, high)


def difference_interval(values: Tensor, others: Tensor) -> Interval:
    """The mean of what ``values`` are above ``others``, user by user: both are of the same users in the same order."""
    if len(values) != len(others):
        raise ValueError(f"{len(values)} and {len(others)} values are not of the same users")
    return mean_interval(values - others)
