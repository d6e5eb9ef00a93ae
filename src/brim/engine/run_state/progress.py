"""Where a run is: what a checkpoint needs beside tensors."""

import math
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from brim.engine.run_state.sample_order import SampleOrder

MOST_THREADS = 1024  # OpenMP takes the process down where it cannot start as many as it is told


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
    evaluated_step: int | None = None  # the last one
    order: SampleOrder | None = None  # that ``position`` is one in; None in checkpoints of earlier versions
    ranked: list[list[float]] = field(default_factory=list)  # [step, value] of the evaluations whose weights are kept
    epoch_batches: int = 0  # of ``epoch`` that are done
    first_batch: dict[str, str] | None = None  # what tells the epoch from others, where its order is the user's
    evaluations_since_best: int | None = 0  # None in checkpoints of earlier versions, which did not count them
    monitor: str | None = (
        None  # the metric that ``best`` and ``ranked`` are of; None where earlier versions did not say
    )
    higher_is_better: bool | None = None  # of that metric
    epoch_loss: float = 0.0  # the sum of the losses of ``epoch`` that are finite
    epoch_losses: int = 0  # how many they are
    epoch_seconds: float = 0.0  # that ``epoch`` has taken, in all runs that made a part of it
    scheduled_epoch: int | None = None  # the last one that a schedule of epochs has counted, also if it goes on yet

    @property
    def epoch_number(self) -> int:
        """The epoch as people count: the one under way, or the last one finished."""
        return self.epoch + (self.position > 0)

    @property
    def epoch_mean(self) -> float | None:
        """The mean loss of the steps of the epoch under way; None where none was finite."""
        return self.epoch_loss / self.epoch_losses if self.epoch_losses else None

    def begin_next_epoch(self) -> None:
        self.epoch, self.position, self.epoch_batches = self.epoch + 1, 0, 0
        self.epoch_loss, self.epoch_losses, self.epoch_seconds = 0.0, 0, 0.0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Any) -> "Progress":
        names = {f.name for f in fields(cls)}
        if not isinstance(value, dict) or not names.issuperset(value):
            raise ValueError("its progress is not one of brim's")
        since_best = value.get("evaluations_since_best")
        order = SampleOrder.from_json(value.get("order"))
        progress = cls(**{**value, "order": order, "evaluations_since_best": since_best})
        if not progress._is_sound():
            raise ValueError("its progress holds values that no run comes to")
        return progress

    def _is_sound(self) -> bool:
        """A checkpoint may come from anywhere, and a step of -10^18 would never reach the end of its run."""
        counts = [self.step, self.epoch, self.position, self.best_step, self.best_epoch, self.epoch_batches]
        counts.append(self.epoch_losses)
        counts += [one for one in (self.evaluations_since_best, self.scheduled_epoch) if one is not None]
        chosen = [count for count in (self.threads, self.micro_batch, self.evaluated_step) if count is not None]
        tables = [self.metrics, self.best_metrics]
        numbers = [self.epoch_loss, self.epoch_seconds, *([] if self.best is None else [self.best])]
        return (
            all(type(count) is int and 0 <= count < 2**63 for count in counts)
            and all(type(count) is int and 1 <= count < 2**63 for count in chosen)
            and (self.threads is None or self.threads <= MOST_THREADS)
            and all(isinstance(table, dict) for table in tables)
            and isinstance(self.first_batch, dict | None)
            and is_ranking(self.ranked)
            and isinstance(self.monitor, str | None)
            and isinstance(self.higher_is_better, bool | None)
            and all(type(number) in (int, float) for number in numbers)
            and all(type(number) in (int, float) for table in tables for number in table.values())
        )

    def follow(self, monitor: str, higher_is_better: bool) -> bool:
        """Let this metric decide what is best; True if another one did, and what was best by that is forgotten.

        >>> progress = Progress(best=0.5, monitor="loss", higher_is_better=False)
        >>> progress.follow("error", False), progress.best
        (True, None)
        """
        then, now = (self.monitor, self.higher_is_better), (monitor, higher_is_better)
        self.monitor, self.higher_is_better = now
        if then[0] is None or then == now:
            return False
        self.best, self.best_step, self.best_epoch, self.best_metrics = None, 0, 0, {}
        self.ranked, self.evaluations_since_best = [], 0
        return True

    def note_evaluation(self, metrics: dict[str, float], value: float, higher_is_better: bool) -> bool:
        """Take in an evaluation; True if it is the best so far."""
        self.metrics, self.evaluated_step = metrics, self.step
        better = self.is_better(value, higher_is_better)
        self.evaluations_since_best = 0 if better else (self.evaluations_since_best or 0) + 1
        if better:
            self.best, self.best_step, self.best_epoch = value, self.step, self.epoch_number
            self.best_metrics = metrics
        return better

    def note_rank(self, value: float, higher_is_better: bool, keep: int) -> bool:
        """Take an evaluation in among the ``keep`` best; True if it is one of them. What is not a number never is.

        >>> progress = Progress(step=5, ranked=[[3, 0.5], [4, 0.7]])
        >>> progress.note_rank(0.6, False, 2), progress.ranked
        (True, [[3, 0.5], [5, 0.6]])
        """
        others = [one for one in self.ranked if one[0] != self.step]
        ranked = others if math.isnan(value) else [*others, [self.step, value]]
        self.ranked = sorted(ranked, key=lambda one: -one[1] if higher_is_better else one[1])[:keep]
        return any(step == self.step for step, _ in self.ranked)

    def is_better(self, value: float, higher_is_better: bool) -> bool:
        """Whether an evaluation is better than the best so far; one that is not a number never is."""
        if math.isnan(value):
            return False
        if self.best is None or math.isnan(self.best):
            return True
        return value > self.best if higher_is_better else value < self.best


def is_ranking(value: Any) -> bool:
    """Whether it is a list of steps and values, as a checkpoint of brim's holds it."""
    pairs = value if isinstance(value, list) else [None]
    return all(isinstance(one, list) and [type(part) in (int, float) for part in one] == [True, True] for one in pairs)
