"""A row of a comparison: a model, and its metrics with intervals."""

from dataclasses import asdict, dataclass, field
from typing import Any

from torch import Tensor

from brim.workloads.recommender.comparison.bootstrap import Interval, mean_interval


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
