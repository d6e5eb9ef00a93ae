"""A row of a comparison: a model, and its metrics with intervals from resampling users, which say how sure they are."""

from dataclasses import asdict, dataclass, field
from typing import Any

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


@dataclass(frozen=True)
class Row:
    """What came of one model.

    Args:
        name: of the model.
        metrics: over resampled users; of a published row, which has none, the value alone.
        note: what was chosen, or where the row is from.
        details: further facts for JSON, such as what was tried.
    """

    name: str
    metrics: dict[str, Interval]
    note: str = ""
    details: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, name: str, values: dict[str, Tensor], note: str = "", **details: Any) -> "Row":
        """A row of metrics of each user."""
        return cls(name, {metric: mean_interval(each) for metric, each in values.items()}, note, details)

    def as_json(self) -> dict[str, Any]:
        return {**{metric: asdict(interval) for metric, interval in self.metrics.items()}, **self.details}
