"""Which weights a run leaves behind: the best ones or the last, in the model and in the run folder."""

from dataclasses import dataclass, field

from brim.engine.checkpoints.saver import Saver
from brim.engine.control.bounds import Bounds
from brim.engine.control.callbacks import Callbacks
from brim.engine.distributed.ranks import Ranks
from brim.engine.run_state.training_state import TrainingState
from brim.record import Journal

# Hooks that run after the evaluation of a step and before the next step, or the end of the run.
AFTER_EVALUATION = ("on_evaluate", "on_epoch_end", "on_save", "on_epoch_start", "on_load", "on_fit_start")


@dataclass
class FinalWeights:
    """Asked once the loop is over; all ranks take part."""

    state: TrainingState
    saver: Saver
    bounds: Bounds
    callbacks: Callbacks
    ranks: Ranks
    journal: Journal
    end_metrics: dict[str, float] | None = None  # of an evaluation that only the end of the run asked for
    _best_is_lost: bool = field(default=False, init=False)

    def restore_best(self) -> dict[str, float]:
        """Load the best weights of the run and return their metrics; those of now, with a warning, if they are lost."""
        progress = self.state.progress
        if self.state.ema is not None:
            self.state.ema.copy_to(self.state.model)
        if not self.bounds.restore_best:
            is_known = progress.evaluated_step == progress.step
            return self.end_metrics or (progress.metrics if is_known else {})
        if self.end_metrics is not None or progress.best is None:  # none was a number, or there were none
            return self.end_metrics or progress.metrics
        is_last = progress.best_step == progress.step
        if is_last and not self.callbacks.handles(*AFTER_EVALUATION):  # which may have changed them
            return progress.best_metrics
        if self.saver.checkpoints.load_best(self.state.model, progress.best_step, is_of_run=True):
            if not is_last:
                self.journal.say(f"back to the best weights, those of step {progress.best_step:,}", "best")
            return progress.best_metrics
        self._best_is_lost = True
        self.journal.warn(
            f"the best weights, those of step {progress.best_step:,}, are damaged or could not be written: the model "
            f"has those of step {progress.step:,}",
            "best",
        )
        return progress.metrics

    def keep(self) -> None:
        """Save the weights that the run ends with, unless the run folder has them already."""
        checkpoints, progress = self.saver.checkpoints, self.state.progress
        asked = self.callbacks.handles("on_fit_end") or self._best_is_lost or not self.bounds.restore_best
        asked = asked or self.state.ema is not None
        asked = asked or ((self.end_metrics is not None or progress.best is None) and checkpoints.has_best)
        if not self.ranks.broadcast_object(asked):
            return
        self.state.gather_weights()
        weights = self.state.weights()
        if self.ranks.is_first and not checkpoints.gives(weights):
            self.saver.save_final(weights, progress.step)
        self.state.forget_copies()
        self.ranks.barrier()  # it is there for all
