"""One run of the training loop."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import islice
from time import perf_counter
from typing import TYPE_CHECKING, Any

from torch.optim.lr_scheduler import ReduceLROnPlateau

from brim.data import Batch, DevicePrefetcher, Feed, batch_length, position_after
from brim.data.feed import ReadyBatches
from brim.engine.captured import CapturedStep
from brim.engine.checkpoints.checkpoint import Checkpoints
from brim.engine.checkpoints.saver import Saver
from brim.engine.components.schedule_unit import EPOCH, STEP
from brim.engine.components.settings import REWIND
from brim.engine.control.bounds import Bounds
from brim.engine.control.callbacks import Callbacks
from brim.engine.control.plateau import follow_monitor
from brim.engine.distributed.model_broadcast import broadcast_norm_statistics
from brim.engine.distributed.rank_feed import RankFeed
from brim.engine.distributed.ranks import Ranks, on_all_ranks
from brim.engine.evaluation.evaluation import Evaluator, evaluate_model
from brim.engine.evaluation.evaluation_sets import mean_losses
from brim.engine.evaluation.evaluation_slices import FittingSize
from brim.engine.evaluation.monitor import Monitor
from brim.engine.mistakes.evaluators import as_numbers
from brim.engine.run.final_weights import FinalWeights
from brim.engine.run.findings import Findings
from brim.engine.run.step_log import StepLog
from brim.engine.run.stopping import Stopping
from brim.engine.run_folder.live_page import LivePage
from brim.engine.run_state.late_parameters import FrozenCopy, LateParameters
from brim.engine.run_state.own_order import OwnOrder, generator_states, restore_generators
from brim.engine.run_state.progress import Progress
from brim.engine.run_state.sample_order import SampleOrder, is_last_position
from brim.engine.run_state.training_state import TrainingState
from brim.engine.step.guard import GuardedStep
from brim.engine.step.nonfinite import BadStep, NonfinitePolicy, Rewind
from brim.engine.step.step_result import StepResult
from brim.engine.step.threads import StepLike
from brim.errors import BadNumbers, CannotFit, DataError
from brim.record import Journal, RunLock
from brim.record.words import show_metrics, show_seconds

if TYPE_CHECKING:
    from brim.engine.fsdp.sharded_guard import ShardedGuard


@dataclass
class TrainingRun:
    """The loop, and what happens between its steps."""

    ranks: Ranks
    state: TrainingState
    step: StepLike
    guard: GuardedStep | ShardedGuard  # within the step
    captured: CapturedStep | None  # the step, where it may be captured
    feed: Feed
    prefetcher: DevicePrefetcher
    seed: int
    accumulation: int
    bounds: Bounds
    evaluator: Evaluator | None
    monitor: Monitor  # which of its metrics decides
    saver: Saver
    numbers: NonfinitePolicy
    findings: Findings
    log: StepLog
    journal: Journal
    callbacks: Callbacks
    owner: Any  # the Trainer, which callbacks are handed
    late: LateParameters
    stopping: Stopping
    final: FinalWeights
    frozen_copy: FrozenCopy | None = None  # where the model that callbacks see is not the one that is trained
    lock: RunLock | None = None
    page: LivePage | None = None
    fitting: FittingSize = field(default_factory=FittingSize)  # batches of an evaluator of the user's
    window: Sequence[Batch] = ()
    first_step: int = 0  # of this run, where it continues another
    is_between_steps: bool = True  # what is logged is of the step before then, and not of a trial of the loss
    is_live: bool = True  # until its last step is made, and the model has what comes of it
    _has_onlookers: bool = False
    _has_compared: bool = False  # what ranks read, in the first epoch
    _is_saved: bool = False  # the state of now
    _epoch_began: float = 0.0  # so much earlier as other runs have made a part of the epoch

    def train(self) -> None:
        """The training loop, from the last checkpoint again where bad numbers ask for it."""
        self.first_step = self.state.progress.step
        self.state.trained.begin(self.first_step)
        if self.frozen_copy is not None:
            self.frozen_copy.follow(self.state.model)  # what on_fit_start has switched
        restore_generators(self.feed, self.state.order_generators)
        if self.ranks.is_first:
            self.saver.begin(self.state)
        self._count_evaluations()
        self._check_patience()
        # On every rank if on one: all must ask at the same moments.
        self._has_onlookers = not self.ranks.is_alone and self.ranks.any_rank(self.callbacks.watches_steps)
        if self.guard.exchange is not None:
            self.guard.exchange.stop_requests = lambda: self.stopping.requests
        if self.numbers.on_nan == REWIND and not self.checkpoints.all():
            self.save()  # there must be something to go back to
        with self.log.shares.recording():
            while True:
                try:
                    while not self._is_over():
                        self._train_epoch()
                    return self._finish()
                except Rewind:
                    self._go_back()

    def _train_epoch(self) -> None:
        """The steps of an epoch, or what is left of them."""
        progress, scheduler = self.state.progress, self._scheduler_of_steps()
        if progress.position == 0:
            self._begin_epoch(progress.epoch + 1)
            if self._is_over():
                return
        self._epoch_began = perf_counter() - progress.epoch_seconds
        for window, samples in self._windows():
            self.window = window
            if self.late.waiting and self.late.join():
                self._suspect_change()
            for on_step_start in self.callbacks.before_step:
                self.log.logged.begin_step()
                on_step_start(self.owner, progress.step + 1)
                self.log.shares.calls_step()
            self.is_between_steps = False
            result = self.step(window)
            progress.step, self._is_saved = progress.step + 1, False
            progress.position = position_after(self.feed, progress.position, len(window), samples)
            progress.epoch_batches += len(window)
            if (self.state.ema is not None or scheduler is not None) and self._has_stepped(result):
                if self.state.ema is not None:
                    self.state.ema.update(self.state.model)
                if scheduler is not None:
                    scheduler.step()
            if not self.ranks.is_alone:
                self.stopping.hear(result)
            self.log.logged.add_step(self.guard.step.numbers)
            self.log.add(result.loss, samples, progress)
            self.is_between_steps = True
            if self._has_onlookers:
                self.ranks.set_timeout()  # callbacks may exchange something as well
            for on_step_end in self.callbacks.on_step:
                on_step_end(self.owner, progress.step, result.loss)
            if self.frozen_copy is not None and self.callbacks.watches_steps:
                self.frozen_copy.follow(self.state.model)
            if self._has_onlookers:
                self.stopping.ask_ranks()
            self._between_steps(progress.step)
            if self._is_over() and not self._ends_with_epoch():
                return
        self._end_epoch()

    def _begin_epoch(self, number: int) -> None:
        if self.callbacks.handles("on_epoch_start"):
            self.callbacks.call("on_epoch_start", self.owner, number)
            self._suspect_change()
        self.stopping.ask_ranks()

    def _has_stepped(self, result: StepResult) -> bool:
        """Whether the weights were moved; where a step with bad numbers is left out, the host has to ask for that."""
        return result.stepped and not (self.guard.step.skip_nonfinite and bool(result.loss.isnan()))

    def averaged_weights(self) -> AbstractContextManager[None]:
        """What is evaluated, and kept as the best: the averaged weights, where there are any. Then ``fit`` leaves them.

        What a callback evaluates is judged by them as well, or its numbers would not be those of the run.
        """
        ema = self.state.ema if self.is_live else None
        return nullcontext() if ema is None else ema.in_place(self.state.model)

    @contextmanager
    def judging(self) -> Iterator[None]:
        """An evaluation, the run's own or a callback's: of the averaged weights, and what it logs is of no step."""
        before, self.is_between_steps = self.is_between_steps, False
        try:
            with self.averaged_weights():
                yield
        finally:
            self.is_between_steps = before

    def _ends_with_epoch(self) -> bool:
        """Whether the last step of the run is the last of an epoch as well, which then ends as others do."""
        progress = self.state.progress
        is_last = (
            is_last_position(self.feed, progress.position) or self.bounds.batches_left(progress.epoch_batches) == 0
        )
        return not self.stopping.is_due() and is_last

    def _windows(self) -> Iterator[tuple[list[Batch], int]]:
        """Optimisation batches on the device, with their number of samples; the last of an epoch may be shorter."""
        progress, times, shares = self.state.progress, self.prefetcher.times, self.log.shares
        place, left = (self.seed, progress.epoch, progress.position), self.bounds.batches_left(progress.epoch_batches)
        feed = self.feed
        if isinstance(feed, ReadyBatches):
            feed = OwnOrder(feed, progress, self.state.order_generators)
        of_ranks = None if self.ranks.is_alone else RankFeed(feed, self.ranks)
        if of_ranks is None:
            batches = self.prefetcher(islice(feed.batches(*place), left))
        else:
            read = of_ranks.compared(*place, not self._has_compared, self.journal.warn)
            batches = self.prefetcher(islice(read, left))
            self._has_compared = True
        shares.asks_for_batch()
        while window := list(islice(batches, self.accumulation)):
            times.wait += shares.has_batch()
            times.batches += len(window)
            yield window, sum([batch_length(one) if of_ranks is None else of_ranks.take_length() for one in window])
            shares.asks_for_batch()
        if progress.position == 0:
            raise DataError(
                f"train_data gave no batch in epoch {progress.epoch + 1}; hand over data that starts anew each epoch "
                "and is not shorter than one batch with drop_last=True"
            )

    @property
    def checkpoints(self) -> Checkpoints:
        return self.saver.checkpoints

    def _go_back(self) -> None:
        """Become what the last checkpoint holds. From here on a step with bad numbers leaves the weights alone."""
        self.saver.wait()
        self.ranks.barrier()
        newest = self.checkpoints.newest_whole(self.journal.warn)
        if newest is None:
            raise BadNumbers("there is no checkpoint to go back to from numbers that are not finite; lower lr")
        told = self.checkpoints.load(newest, self.state, goes_back=True)
        for remark in told if self.ranks.is_first else ():
            self.journal.warn(remark, "resume")
        self.late.wait_anew()
        if self.frozen_copy is not None:
            self.frozen_copy.lead(self.state.model)
        if self.evaluator is not None:  # it may be of the run that this one continues, with another metric
            follow_monitor(self.state.progress, self.state.scheduler, self.monitor)
        self.log.forget()
        self.is_between_steps = True  # the step that brought bad numbers was not
        self.callbacks.call("on_load", self.owner, self.state.progress.step)
        restore_generators(self.feed, self.state.order_generators)
        self.guard.step.skip_nonfinite = True
        self._is_saved = True
        self._suspect_change()

    def _suspect_change(self) -> None:
        """Somebody else's code has run, and may have changed what the model computes."""
        self._is_saved = False
        if self.frozen_copy is not None:
            self.frozen_copy.follow(self.state.model)
        if self.captured is not None:
            self.captured.suspect = True

    def batches_of(self, bad: BadStep) -> list[Batch]:
        """The batches of a step: still at hand, or read once more."""
        if bad.step == self.state.progress.step and self.window:
            return list(self.window)
        again = RankFeed(self.feed, self.ranks).batches(self.seed, bad.epoch, bad.first)
        return list(islice(again, self.accumulation))

    def _sample_order(self) -> SampleOrder:
        return SampleOrder.of(self.feed, self.seed, self.accumulation, self.bounds.limit_train_batches)

    def _scheduler_of_steps(self) -> Any:
        """The schedule, where it advances with steps."""
        return self.state.scheduler if self._schedule_counts(STEP) else None

    def _schedule_counts(self, unit: str) -> bool:
        return self.state.scheduler is not None and self.state.schedule is not None and self.state.schedule.unit == unit

    def _is_over(self) -> bool:
        progress, bounds = self.state.progress, self.bounds
        if self.stopping.is_due():
            return True
        if bounds.max_steps is not None:
            return progress.step >= bounds.max_steps
        return progress.epoch >= bounds.epochs

    def _between_steps(self, step: int) -> None:
        self.log.write_if_due(self.state.progress)
        if self.page is not None:
            self.page.write_if_due()
        if self.bounds.eval_every.after_step(step) and self.evaluate():
            progress = self.state.progress
            self._tell_evaluation(progress.metrics, progress.best_step == step)
        if self.bounds.checkpoint_every is not None and step % self.bounds.checkpoint_every == 0:
            self.save()

    def _tell_evaluation(self, metrics: dict[str, float], is_best: bool) -> None:
        """In a line of its own, where the line of an epoch does not have it."""
        step = self.state.progress.step
        self.journal.say(f"step {step:,}: evaluation {show_metrics(metrics, is_best)}", "evaluation", step=step)

    def _end_epoch(self) -> None:
        """What follows the last step of an epoch. The epoch counts as done when all of it is, callbacks included.

        So a run that ends in the middle of this does it when it is resumed, from the weights of the last step.
        """
        progress = self.state.progress
        self.log.read(progress)
        number, mean = progress.epoch + 1, progress.epoch_mean
        told = [] if mean is None else [f"loss {mean:.4f}"]
        if self.bounds.eval_every.after_epoch(number) and self.evaluate():
            told.append(f"evaluation {show_metrics(progress.metrics, progress.best_step == progress.step)}")
        seconds = perf_counter() - self._epoch_began
        told.append(show_seconds(seconds))
        facts = {"epoch": number, "loss": mean, "seconds": round(seconds, 3)}
        self.journal.say(f"epoch {number}: {', '.join(told)}", "epoch", **facts)
        self.callbacks.call("on_epoch_end", self.owner, number)
        self.log.write_logged(progress)
        self.stopping.ask_ranks()
        self._suspect_change()
        if self._schedule_counts(EPOCH) and self.state.scheduler is not None:
            self.state.scheduler.step()  # with the count of epochs: a checkpoint has both or none
        progress.begin_next_epoch()
        if self.bounds.checkpoint_every is None:
            self.save()

    def _finish(self) -> None:
        """Leave the run with its last numbers and a checkpoint of its last step.

        One that is done is evaluated as well, unless it has just been. Weights that are (among) the best by that are
        kept as such, but the evaluation is not in the checkpoint: a run that goes on from it, with more epochs, has the
        evaluations, best weights and schedule of one that never ended.
        """
        self.stopping.settle()
        self.log.flush(self.state.progress)
        self.saver.wait()  # the last one is not left out because another is being written
        self.save()
        self.saver.wait()
        if not self.stopping.was_interrupted and not self.stopping.is_agreed:
            self._judge_end()
            self.saver.wait()
        self.window = ()  # a run that is over holds no batch
        self.ranks.barrier()  # what the first rank has written is there for all

    def _judge_end(self) -> None:
        progress, evaluator = self.state.progress, self.evaluator
        if evaluator is None or progress.evaluated_step == progress.step:
            return
        broadcast_norm_statistics(self.state.model, self.ranks)
        metrics = self._metrics(evaluator)
        value, higher = metrics[self.monitor.name], self.monitor.higher_is_better
        is_best, is_kept = progress.is_better(value, higher), progress.best is None or not self.bounds.restore_best
        if is_kept or is_best:
            self.final.end_metrics = metrics
        at_end = replace(progress)
        is_ranked = self.bounds.keep_best > 1 and at_end.note_rank(value, higher, self.bounds.keep_best)
        if is_best or is_ranked:
            self._save_best(at_end, is_best, is_end=True)
        self._write_evaluation(metrics)
        self._tell_evaluation(metrics, is_best)

    def evaluate(self) -> bool:
        """Evaluate, unless this step has been; keep the weights if they are the best so far."""
        progress, evaluator = self.state.progress, self.evaluator
        if evaluator is None or progress.evaluated_step == progress.step:
            return evaluator is not None
        self.log.read(progress)
        broadcast_norm_statistics(self.state.model, self.ranks)
        metrics = self._metrics(evaluator)
        value, higher = metrics[self.monitor.name], self.monitor.higher_is_better
        is_best = progress.note_evaluation(metrics, value, higher)
        is_ranked = self.bounds.keep_best > 1 and progress.note_rank(value, higher, self.bounds.keep_best)
        if is_best or is_ranked:
            self._save_best(progress, is_best)
        self._step_plateau(value)
        self._write_evaluation(metrics)
        self._check_patience()
        return True

    def _write_evaluation(self, metrics: dict[str, float]) -> None:
        """After the callbacks, which may add numbers of their own; where one of them fails as well."""
        progress = self.state.progress
        try:
            self.callbacks.call("on_evaluate", self.owner, metrics)
        finally:
            metrics.update(as_numbers(metrics, "on_evaluate"))
            told = {f"eval/{name}": value for name, value in metrics.items()}
            self.log.file.write(progress.step, progress.epoch_number, **told)
        self.log.write_logged(progress)
        self.stopping.ask_ranks()
        self._suspect_change()
        self.log.resume_clock()

    def _save_best(self, progress: Progress, is_best: bool, is_end: bool = False) -> None:
        with self.averaged_weights():
            self.state.gather_weights()
            if self.ranks.is_first:
                ranked = [int(step) for step, _ in progress.ranked]
                self.saver.save_best(self.state.weights(), progress.step, ranked, is_best, is_end)
        self.state.forget_copies()

    def _metrics(self, evaluator: Evaluator) -> dict[str, float]:
        """The first rank's, for all: an evaluator that draws at random gives each rank its own."""
        self.log.bar.do("evaluating")
        if self.callbacks.handles("on_evaluate_start"):
            self.callbacks.call("on_evaluate_start", self.owner)
            self._suspect_change()
        failed: CannotFit | None = None
        metrics: dict[str, float] = {}
        try:
            with self.judging():
                metrics = evaluate_model(evaluator, self.state.model, self.fitting, self.monitor.name)
        except CannotFit as error:
            if self.ranks.is_alone:
                raise
            failed = error
        if self.ranks.any_rank(failed is not None):
            raise on_all_ranks(failed or CannotFit("another rank has no memory to evaluate; its own log says more"))
        told: dict[str, float] = self.ranks.broadcast_object(metrics)
        return told

    def _step_plateau(self, value: float) -> None:
        """Let a schedule that waits for evaluations have it."""
        if isinstance(self.state.scheduler, ReduceLROnPlateau):
            self.state.scheduler.step(value)

    def _count_evaluations(self) -> None:
        """Those since the best one, in a run that continues one of an earlier version, which did not count them."""
        progress = self.state.progress
        if progress.evaluations_since_best is None:
            best = progress.best_epoch, progress.best_step
            now = progress.epoch, progress.evaluated_step or 0
            progress.evaluations_since_best = self.bounds.eval_every.between(best, now)

    def _check_patience(self) -> None:
        """After an evaluation, or before going on with a run that had ended."""
        since_best, patience = self.state.progress.evaluations_since_best or 0, self.bounds.patience
        if patience is not None and since_best >= patience:
            count = "1 evaluation" if patience == 1 else f"{patience} evaluations"
            self.stopping.decide(f"no better evaluation in {count}")  # all ranks have the same evaluations

    def reclaim_memory(self) -> None:
        """Give back what is held for faster steps and evaluations."""
        if isinstance(self.guard, GuardedStep) and self.guard.replicated is not None:
            self.guard.replicated.drop_overlap()
        if self.captured is not None:
            self.captured.drop()
        for one in mean_losses(self.evaluator):
            if one.captured is not None:
                one.captured.drop()

    def save(self) -> None:
        """Write a checkpoint, unless there is one of this moment."""
        progress = self.state.progress
        if not self._is_saved:
            if self.callbacks.handles("on_save"):
                self.callbacks.call("on_save", self.owner, progress.step)
                self._suspect_change()
            self.log.read(progress)  # bad numbers are found before they are saved
            if self.lock is not None:
                self.lock.check()
            broadcast_norm_statistics(self.state.model, self.ranks)  # before they are judged: then all judge alike
            self.numbers.check_weights(self.state.model, progress.step, self.ranks.any_rank)
            progress.order = self._sample_order()
            progress.epoch_seconds = perf_counter() - self._epoch_began if progress.position else 0.0
            if progress.position == 0:  # the next epoch begins from here
                self.state.order_generators = generator_states(self.feed)
            remark = self.state.gather_state()
            if remark is not None and self.ranks.is_first:
                self.journal.warn(remark, "checkpoint")
            self._is_saved = self.ranks.broadcast_object(self.saver.save(self.state) if self.ranks.is_first else None)
            self.state.forget_copies()
            self.log.resume_clock()
