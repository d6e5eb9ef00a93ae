"""Where a run is: what a checkpoint needs beside tensors."""

import math
from dataclasses import asdict, dataclass, field, fields
from typing import Any


@dataclass
class Progress:
    """Counters of a run. ``position`` is the number of samples of ``epoch`` that are done."""

    step: int = 0
    epoch: int = 0
    position: int = 0
    best: float | None = None
    best_step: int = 0
    best_epoch: int = 0
    threads: int | None = None
    micro_batch: int | None = None  # what was found to fit
    metrics: dict[str, float] = field(default_factory=dict)
    best_metrics: dict[str, float] = field(default_factory=dict)

    @property
    def epoch_number(self) -> int:
        """The epoch as people count: the one under way, or the last one finished."""
        return self.epoch + (self.position > 0)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Any) -> "Progress":
        names = {f.name for f in fields(cls)}
        if not isinstance(value, dict) or not names.issuperset(value):
            raise ValueError("its progress is not one of brim's")
        return cls(**value)

    def note_evaluation(self, metrics: dict[str, float], value: float, higher_is_better: bool) -> bool:
        """Take in an evaluation; True if it is the best so far."""
        self.metrics = metrics
        first = self.best is None or math.isnan(self.best)
        better = first or (value > self.best if higher_is_better else value < self.best)  # type: ignore[operator]
        if better:
            self.best, self.best_step, self.best_epoch = value, self.step, self.epoch_number
            self.best_metrics = metrics
        return better
