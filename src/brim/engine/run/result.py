"""What comes of a run."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Result:
    """What came of a run, as :meth:`brim.Trainer.fit` returns it.

    Args:
        run: the run folder.
        steps: optimizer steps since the run began, before it was resumed included.
        epochs: whole passes over the training data.
        seconds: what this call of ``fit`` took.
        ended: ``"done"``, or why the run stopped.
        metrics: of the test data, or of the evaluation data where there is none.

    >>> Result(Path("runs/a"), 10, 1, 0.5, "done", {"loss": 0.25}).as_json()["metrics"]
    {'loss': 0.25}
    """

    run: Path
    steps: int
    epochs: int
    seconds: float
    ended: str
    metrics: dict[str, float]

    def as_json(self) -> dict[str, Any]:
        counts = {"steps": self.steps, "epochs": self.epochs, "seconds": round(self.seconds, 3)}
        return {**counts, "ended": self.ended, "metrics": self.metrics}
