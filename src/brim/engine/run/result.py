"""What comes of a run."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Result:
    """What came of a run. ``metrics`` are those of the test data, or of the evaluation data where there is none."""

    run: Path
    steps: int
    epochs: int
    seconds: float
    ended: str
    metrics: dict[str, float]

    def as_json(self) -> dict[str, Any]:
        counts = {"steps": self.steps, "epochs": self.epochs, "seconds": round(self.seconds, 3)}
        return {**counts, "ended": self.ended, "metrics": self.metrics}
