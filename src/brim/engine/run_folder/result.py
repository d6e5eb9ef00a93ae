"""What comes of a run."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from brim.arguments.attributes import UnknownAttribute, missing_attribute
from brim.record.notebook import result_card
from brim.record.words import metrics_line, show_seconds


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

    if not TYPE_CHECKING:

        def __getattr__(self, name):
            if name in vars(self).get("metrics", ()):
                raise UnknownAttribute(f"Result has no attribute {name}: it is metrics[{name!r}]")
            raise missing_attribute(self, name)

    def sentence(self, columns: int | None = None) -> str:
        """What came of the run, in a few words; with as many metrics as fit into ``columns``.

        >>> Result(Path("runs/a"), 10, 1, 0.5, "done", {"loss": 0.25}).sentence()
        'done: 10 steps in 0.5 s, loss 0.2500'
        """
        ended = "done" if self.ended == "done" else f"ended early ({self.ended})"
        steps = f"{self.steps:,} step{'s' * (self.steps != 1)}"
        comma = ", " if self.metrics else ""
        return metrics_line(f"{ended}: {steps} in {show_seconds(self.seconds)}{comma}", self.metrics, "", columns)

    def _repr_html_(self) -> str:
        """What a notebook shows: a table, and the loss over the steps."""
        return result_card(self.run, self.steps, self.epochs, self.seconds, self.ended, self.metrics)

    def as_json(self) -> dict[str, Any]:
        counts = {"steps": self.steps, "epochs": self.epochs, "seconds": round(self.seconds, 3)}
        return {**counts, "ended": self.ended, "metrics": self.metrics}
