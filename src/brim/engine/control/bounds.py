"""How long a run is, and how often it evaluates and saves."""

from dataclasses import dataclass

from brim.data import Feed, batches_per_epoch
from brim.engine.components.cadence import Cadence
from brim.engine.components.settings import TrainerSettings


@dataclass(frozen=True)
class Bounds:
    """When a run ends and how often it evaluates and saves. ``max_steps``, where set, decides instead of ``epochs``."""

    epochs: int
    max_steps: int | None
    eval_every: Cadence
    patience: int | None
    checkpoint_every: int | None
    accumulation: int = 1
    keep_best: int = 1
    restore_best: bool = True
    limit_train_batches: int | None = None

    @classmethod
    def of(cls, settings: TrainerSettings) -> "Bounds":
        return cls(
            settings.epochs, settings.max_steps, Cadence.parse(settings.eval_every), settings.patience,
            settings.checkpoint_every, settings.accumulation, settings.keep_best, settings.restore_best,
            settings.limit_train_batches,
        )  # fmt: skip

    def batches_left(self, done: int) -> int | None:
        """Of an epoch of which so many are done, where it is said how many it has."""
        return None if self.limit_train_batches is None else max(0, self.limit_train_batches - done)

    def total_steps(self, feed: Feed) -> int | None:
        """Of the run, where that is known."""
        if self.max_steps is not None:
            return self.max_steps
        steps = self.epoch_steps(feed)
        return None if steps is None else self.epochs * steps

    def epochs_passed_over(self, feed: Feed) -> str | None:
        """A sentence where ``max_steps`` goes on beyond the ``epochs`` that were asked for too: others end there."""
        steps = self.epoch_steps(feed)
        if self.max_steps is None or self.epochs == 1 or steps is None or self.epochs * steps >= self.max_steps:
            return None
        return (
            f"max_steps={self.max_steps} decides, and epochs={self.epochs}, which would end after "
            f"{self.epochs * steps} steps, has no effect; leave max_steps out to end there"
        )

    def epoch_steps(self, feed: Feed) -> int | None:
        batches = batches_per_epoch(feed)
        if batches is None:
            return None
        return -(-min(batches, self.limit_train_batches or batches) // self.accumulation)
