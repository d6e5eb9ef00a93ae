"""The evaluations of a run: by which weights, what is the best so far, who is told, and when to give up."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from torch.optim.lr_scheduler import ReduceLROnPlateau

from brim.engine.checkpoints.saver import Saver
from brim.engine.control.bounds import Bounds
from brim.engine.control.callbacks import Callbacks
from brim.engine.distributed.model_broadcast import broadcast_norm_statistics
from brim.engine.distributed.ranks import Ranks
from brim.engine.evaluation.evaluation import Evaluator, evaluate_model
from brim.engine.evaluation.evaluation_slices import FittingSize
from brim.engine.evaluation.monitor import Monitor
from brim.engine.mistakes.evaluators import as_numbers
from brim.engine.oom.memory_parts import EVALUATION
from brim.engine.oom.memory_watch import MemoryWatch
from brim.engine.run.final_weights import FinalWeights
from brim.engine.run.outside_changes import OutsideChanges
from brim.engine.run.stopping import Stopping
from brim.engine.run_log.step_log import StepLog
from brim.engine.run_state.progress import Progress
from brim.engine.run_state.training_state import TrainingState
from brim.record import Journal
from brim.record.words import BEST, metrics_line


@dataclass
class RunEvaluations:
    """All ranks take part in each. ``trainer`` is the Trainer, which callbacks are handed."""

    evaluator: Evaluator | None
    monitor: Monitor  # which of its metrics decides
    state: TrainingState
    bounds: Bounds
    callbacks: Callbacks
    trainer: Any
    log: StepLog
    journal: Journal
    ranks: Ranks
    saver: Saver
    changes: OutsideChanges
    stopping: Stopping
    final: FinalWeights
    fitting: FittingSize = field(default_factory=FittingSize)  # batches of an evaluator of the user's
    watch: MemoryWatch | None = None  # to which evaluations are a part of the run's memory

    def begin(self) -> None:
        """Before the first step. A run that goes on from one of an earlier version counts what that did not count."""
        progress = self.state.progress
        if progress.evaluations_since_best is None:
            best = progress.best_epoch, progress.best_step
            now = progress.epoch, progress.evaluated_step or 0
            progress.evaluations_since_best = self.bounds.eval_every.between(best, now)
        self._check_patience()  # a run that had ended for lack of it does not go on

    def evaluate(self) -> bool:
        """Evaluate, unless this step has been; keep the weights if they are the best so far. False without data."""
        progress, evaluator = self.state.progress, self.evaluator
        if evaluator is None or progress.evaluated_step == progress.step:
            return evaluator is not None
        self.log.read(progress)
        metrics = self._metrics(evaluator)
        value, higher = metrics[self.monitor.name], self.monitor.higher_is_better
        is_best = progress.note_evaluation(metrics, value, higher)
        is_ranked = self.bounds.keep_best > 1 and progress.note_rank(value, higher, self.bounds.keep_best)
        if is_best or is_ranked:
            self._save_best(progress, is_best)
        if isinstance(self.state.scheduler, ReduceLROnPlateau):  # it waits for evaluations
            self.state.scheduler.step(value)
        self._write(metrics)
        self._check_patience()
        return True

    def evaluate_end(self) -> None:
        """Evaluate the end of a run, unless it has just been: kept if it is the best, and in no checkpoint."""
        progress, evaluator = self.state.progress, self.evaluator
        if evaluator is None or progress.evaluated_step == progress.step:
            return
        metrics = self._metrics(evaluator)
        value, higher = metrics[self.monitor.name], self.monitor.higher_is_better
        is_best, is_kept = progress.is_better(value, higher), progress.best is None or not self.bounds.restore_best
        if is_kept or is_best:
            self.final.end_metrics = metrics
        at_end = replace(progress)
        is_ranked = self.bounds.keep_best > 1 and at_end.note_rank(value, higher, self.bounds.keep_best)
        if is_best or is_ranked:
            self._save_best(at_end, is_best, is_end=True)
        self._write(metrics)
        self.log_metrics(metrics, is_best)

    def in_order(self, metrics: dict[str, float]) -> dict[str, float]:
        """The metrics as a line has them: the one that decides comes first, which every terminal has room for."""
        return dict(sorted(metrics.items(), key=lambda metric: metric[0] != self.monitor.name))

    def log_metrics(self, metrics: dict[str, float], is_best: bool) -> None:
        """Log an evaluation in a line of its own, where the line of an epoch does not have it."""
        step = self.state.progress.step
        line = partial(metrics_line, f"step {step:,}: eval ", self.in_order(metrics), BEST if is_best else "")
        self.journal.say(line, "evaluation", step=step)

    @contextmanager
    def evaluation_scope(self) -> Iterator[None]:
        """Around an evaluation of the run or of a callback: averaged weights; numbers that it logs are of no step."""
        logged = self.log.logged
        before, logged.is_between_steps = logged.is_between_steps, False
        try:
            with self._averaged_weights():
                yield
        finally:
            logged.is_between_steps = before

    def _averaged_weights(self) -> AbstractContextManager[None]:
        """What is evaluated, and kept as the best: the averaged weights, where there are any. Then ``fit`` leaves them.

        What a callback evaluates is judged by them as well, or its numbers would not be those of the run.
        """
        ema = self.state.ema if self.stopping.is_live else None
        return nullcontext() if ema is None else ema.in_place(self.state.model)

    def _memory_part(self) -> AbstractContextManager[None]:
        return nullcontext() if self.watch is None else self.watch.of_part(EVALUATION)

    def _metrics(self, evaluator: Evaluator) -> dict[str, float]:
        """The first rank's, for all: an evaluator that draws at random gives each rank its own."""
        broadcast_norm_statistics(self.state.model, self.ranks)
        self.log.bar.do("evaluating")
        if self.callbacks.handles("on_evaluate_start"):
            self.callbacks.call("on_evaluate_start", self.trainer)
            self.changes.note_user_code()
        with self.ranks.fits_on_all("evaluate"), self.evaluation_scope(), self._memory_part():
            metrics = evaluate_model(evaluator, self.state.model, self.fitting, self.monitor.name)
        told: dict[str, float] = self.ranks.broadcast_object(metrics)
        return told

    def _save_best(self, progress: Progress, is_best: bool, is_end: bool = False) -> None:
        with self._averaged_weights():
            self.state.gather_weights()
            if self.ranks.is_first:
                ranked = [int(step) for step, _ in progress.ranked]
                self.saver.save_best(self.state.weights(), progress.step, ranked, is_best, is_end)
        self.state.forget_copies()

    def _write(self, metrics: dict[str, float]) -> None:
        """After the callbacks, which may add numbers of their own; where one of them fails as well."""
        progress = self.state.progress
        try:
            self.callbacks.call("on_evaluate", self.trainer, metrics)
        finally:
            metrics.update(as_numbers(metrics, "on_evaluate"))
            told = {f"eval/{name}": value for name, value in metrics.items()}
            self.log.file.write(progress.step, progress.epoch_number, **told)
        self.log.write_logged(progress)
        self.stopping.exchange_reasons()
        self.changes.note_user_code()
        self.log.resume_clock()

    def _check_patience(self) -> None:
        since_best, patience = self.state.progress.evaluations_since_best or 0, self.bounds.patience
        if patience is not None and since_best >= patience:
            count = "1 evaluation" if patience == 1 else f"{patience} evaluations"
            self.stopping.decide(f"no better evaluation in {count}")  # all ranks have the same evaluations
