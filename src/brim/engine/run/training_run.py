"""One run of the training loop."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from time import perf_counter
from typing import TYPE_CHECKING, Any

from brim.data import Batch, DevicePrefetcher, Feed, Loader, batch_length, position_after
from brim.data.feed import ReadyBatches
from brim.engine.captured import CapturedStep
from brim.engine.checkpoints.checkpoint import Checkpoints
from brim.engine.checkpoints.saver import Saver
from brim.engine.components.schedule_unit import EPOCH, STEP
from brim.engine.components.settings import REWIND
from brim.engine.control.bounds import Bounds
from brim.engine.control.callbacks import Callbacks
from brim.engine.control.plateau import follow_monitor
from brim.engine.distributed.model_broadcast import broadcast_norm_statistics, remark_on_differences
from brim.engine.distributed.rank_feed import RankFeed
from brim.engine.distributed.ranks import Ranks
from brim.engine.evaluation.evaluation_sets import drop_graphs
from brim.engine.run.final_weights import FinalWeights
from brim.engine.run.findings import Findings
from brim.engine.run.outside_changes import OutsideChanges
from brim.engine.run.run_evaluations import RunEvaluations
from brim.engine.run.stopping import Stopping
from brim.engine.run_folder.live_page import LivePage
from brim.engine.run_log.step_log import StepLog
from brim.engine.run_state.read_ahead import ReadAhead
from brim.engine.run_state.sample_order import SampleOrder, is_last_position
from brim.engine.run_state.thawed_parameters import ThawedParameters
from brim.engine.run_state.training_state import TrainingState
from brim.engine.run_state.user_order import UserOrder, order_states, restore_order
from brim.engine.step.guard import GuardedStep
from brim.engine.step.nonfinite import BadStep, NonfinitePolicy, Rewind
from brim.engine.step.step_result import StepResult
from brim.engine.step.threads import StepLike
from brim.errors import BadNumbers, DataError
from brim.record import Journal, RunLock
from brim.record.words import BEST, metrics_line, show_number, show_seconds

if TYPE_CHECKING:
    from brim.engine.fsdp import ShardedTraining
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
    evaluations: RunEvaluations
    saver: Saver
    numbers: NonfinitePolicy
    findings: Findings
    log: StepLog
    journal: Journal
    callbacks: Callbacks
    trainer: Any  # the Trainer, which callbacks are handed
    thawed: ThawedParameters
    stopping: Stopping
    final: FinalWeights
    changes: OutsideChanges
    sharded: ShardedTraining | None = None  # until the model has what comes of the run
    lock: RunLock | None = None
    page: LivePage | None = None
    window: Sequence[Batch] = ()
    first_step: int = 0  # of this run, where it continues another
    _has_onlookers: bool = False
    _has_compared: bool = False  # what ranks read, in the first epoch
    _is_told_apart: bool = False  # that ranks have different weights
    _epoch_began: float = 0.0  # so much earlier as other runs have made a part of the epoch

    def train(self) -> None:
        """The training loop, from the last checkpoint again where bad numbers ask for it."""
        self.first_step = self.state.progress.step
        self._epoch_began = perf_counter() - self.state.progress.epoch_seconds
        self.state.trained.begin(self.first_step)
        remark = None if self.state.user_state is None else self.state.user_state.begin()
        self.journal.warn_for_all(remark, "resume")
        self.changes.push_modes()  # what on_fit_start has switched
        restore_order(self.feed, self.state.order_generators)
        if isinstance(self.feed, Loader):
            self.feed.expect_writes(between_batches=self.callbacks.watches_steps)
        if self.ranks.is_first:
            self.saver.begin(self.state)
        self.evaluations.begin()
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
        progress = self.state.progress
        if progress.position == 0:
            self._begin_epoch(progress.epoch + 1)
            if self._is_over():
                return
        self._epoch_began = perf_counter() - progress.epoch_seconds
        for window, samples in self._windows():
            self.window = window
            if self.thawed.waiting and self.thawed.join():
                self.changes.note_user_code()
            for on_step_start in self.callbacks.before_step:
                self.log.logged.begin_step()
                on_step_start(self.trainer, progress.step + 1)
                self.log.shares.calls_step()
            result = self._make_step(window, samples)
            if self._has_onlookers:
                self.ranks.set_timeout()  # callbacks may exchange something as well
            for on_step_end in self.callbacks.on_step:
                on_step_end(self.trainer, progress.step, result.loss)
            if self.callbacks.watches_steps:
                self.changes.push_modes()
            if self._has_onlookers:
                self.stopping.exchange_reasons()
            self._between_steps(progress.step)
            if self._is_over() and not self._ends_with_epoch():
                return
        self._end_epoch()

    def _make_step(self, window: Sequence[Batch], samples: int) -> StepResult:
        """One optimizer step, and what follows from it: the position, the averaged weights, the schedule, the log."""
        progress, scheduler = self.state.progress, self._scheduler_of_steps()
        self.log.logged.is_between_steps = False
        try:
            result = self.step(window)
            self.log.note_lr()
            progress.step, self.changes.is_saved = progress.step + 1, False
            progress.position = position_after(self.feed, progress.position, len(window), samples)
            progress.epoch_batches += len(window)
            if (self.state.ema is not None or scheduler is not None) and self._has_stepped(result):
                if self.state.ema is not None:
                    self.state.ema.update(self.state.model)
                if scheduler is not None:
                    scheduler.step()
            if not self.ranks.is_alone:
                self.stopping.read_requests(result)
            self.log.logged.add_step(self.guard.step.numbers)
            self.log.add(result.loss, samples, progress)
        finally:
            self.log.logged.is_between_steps = True
        return result

    def _begin_epoch(self, number: int) -> None:
        if self.callbacks.handles("on_epoch_start"):
            self.callbacks.call("on_epoch_start", self.trainer, number)
            self.changes.note_user_code()
        self.stopping.exchange_reasons()

    def _has_stepped(self, result: StepResult) -> bool:
        """Whether the weights were moved; where a step with bad numbers is left out, the host has to ask for that."""
        return result.stepped and not (self.guard.step.skip_nonfinite and bool(result.loss.isnan()))

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
        feed: Feed = self.feed
        if isinstance(feed, ReadyBatches):
            feed = UserOrder(feed, progress, self.state.order_generators)
        of_ranks = None if self.ranks.is_alone else RankFeed(feed, self.ranks)
        ahead = ReadAhead(self.feed, self.prefetcher, self.callbacks.watches_steps, self.journal.say, self.journal.warn)
        batches = self._batches(feed, of_ranks)
        shares.asks_for_batch()
        while window := list(islice(batches, self.accumulation)):
            times.wait += shares.got_batch()
            times.batches += len(window)
            ahead.note(of_ranks is None)
            yield window, sum([batch_length(one) if of_ranks is None else of_ranks.take_length() for one in window])
            if ahead.must_come_again():  # without a look at how the epoch began, which may have been changed as well
                batches = self._batches(self.feed, of_ranks)
            shares.asks_for_batch()
        if progress.position == 0:
            raise DataError(
                f"train_data gave no batch in epoch {progress.epoch + 1}; hand over data that starts anew each epoch "
                "and is not shorter than one batch with drop_last=True"
            )

    def _batches(self, feed: Feed, of_ranks: RankFeed | None) -> Iterator[Batch]:
        """The batches of the epoch from here on, on the device."""
        progress = self.state.progress
        place, left = (self.seed, progress.epoch, progress.position), self.bounds.batches_left(progress.epoch_batches)
        if of_ranks is None:
            return self.prefetcher(islice(feed.batches(*place), left))
        read = of_ranks.compared(*place, not self._has_compared, self.journal.warn)
        self._has_compared = True
        return self.prefetcher(islice(read, left))

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
        for remark in told:
            self.journal.warn_for_all(remark, "resume")
        self.thawed.restart()
        self.changes.pull_modes()
        if self.evaluations.evaluator is not None:  # it may be of the run that this one continues, with another metric
            follow_monitor(self.state.progress, self.state.scheduler, self.evaluations.monitor)
        self.log.forget()
        self.callbacks.call("on_load", self.trainer, self.state.progress.step)
        restore_order(self.feed, self.state.order_generators)
        self.guard.step.skip_nonfinite = True
        self.changes.note_user_code()

    def batches_of(self, bad: BadStep) -> list[Batch]:
        """The batches of a step: still at hand, or read once more."""
        if bad.step == self.state.progress.step and self.window:
            return list(self.window)
        again = RankFeed(self.feed, self.ranks).batches(self.seed, bad.epoch, bad.first)
        return list(islice(again, self.accumulation))

    def _compare_ranks(self) -> None:
        """Say once where replicas are none any more."""
        if self._is_told_apart or self.ranks.is_alone or self.sharded is not None:
            return
        remark = remark_on_differences(self.state.model, self.ranks)
        self.journal.warn_for_all(remark, "ranks")
        self._is_told_apart = remark is not None

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
        if self.bounds.eval_every.after_step(step) and self.evaluations.evaluate():
            self.evaluations.log_metrics(self.state.progress.metrics, self.state.progress.best_step == step)
        if self.bounds.checkpoint_every is not None and step % self.bounds.checkpoint_every == 0:
            self.save()

    def _end_epoch(self) -> None:
        """What follows the last step of an epoch. The epoch counts as done when all of it is, callbacks included.

        So a run that ends in the middle of this does it when it is resumed, from the weights of the last step.
        """
        progress = self.state.progress
        self.log.read(progress)
        number = progress.epoch + 1
        is_judged = self.bounds.eval_every.after_epoch(number) and self.evaluations.evaluate()
        seconds = perf_counter() - self._epoch_began
        self._tell_epoch(self.evaluations.in_order(progress.metrics) if is_judged else {}, seconds)
        self.callbacks.call("on_epoch_end", self.trainer, number)
        self.log.write_logged(progress)
        self.stopping.exchange_reasons()
        self.changes.note_user_code()
        self.step_epoch_schedule()
        progress.begin_next_epoch()
        if self.bounds.checkpoint_every is None:
            self.save()

    def _tell_epoch(self, metrics: dict[str, float], seconds: float) -> None:
        progress = self.state.progress
        number, mean = progress.epoch + 1, progress.epoch_mean
        head = f"epoch {number}: " + ("" if mean is None else f"loss {show_number(mean)}, ")
        best = BEST if progress.best_step == progress.step else ""
        duration = show_seconds(seconds)
        judged = (f"{head}eval ", metrics, f"{best}, {duration}") if metrics else (head, metrics, duration)
        facts = {"epoch": number, "loss": mean, "seconds": round(seconds, 3)}
        self.journal.say(partial(metrics_line, *judged), "epoch", **facts)

    def step_epoch_schedule(self) -> None:
        """Let a schedule of epochs count the one under way, once: when it ends, or before, where a callback asks.

        The progress says so in the same checkpoint as the schedule: a run that goes on from it does not count it again.
        """
        progress, scheduler = self.state.progress, self.state.scheduler
        if scheduler is not None and self._schedule_counts(EPOCH) and progress.scheduled_epoch != progress.epoch:
            scheduler.step()
            progress.scheduled_epoch = progress.epoch

    def _finish(self) -> None:
        """Leave the run with its last numbers and a checkpoint of its last step.

        One that is done is evaluated as well, unless it has just been. Weights that are (among) the best by that are
        kept as such, but the evaluation is not in the checkpoint: a run that goes on from it, with more epochs, has the
        evaluations, best weights and schedule of one that never ended.
        """
        self.stopping.exchange_interrupts()
        self.log.flush(self.state.progress)
        self.saver.wait()  # the last one is not left out because another is being written
        self.save()
        self.saver.wait()
        if not self.stopping.was_interrupted and not self.stopping.is_agreed:
            self.evaluations.evaluate_end()
            self.saver.wait()
        self.window = ()  # a run that is over holds no batch
        self.ranks.barrier()  # what the first rank has written is there for all

    def reclaim_memory(self) -> None:
        """Give back what is held for faster steps and evaluations."""
        if isinstance(self.guard, GuardedStep) and self.guard.replicated is not None:
            self.guard.replicated.drop_overlap()
        if self.captured is not None:
            self.captured.drop()
        drop_graphs(self.evaluations.evaluator)

    def save(self) -> None:
        """Write a checkpoint, unless there is one of this moment."""
        progress = self.state.progress
        if not self.changes.is_saved:
            if self.callbacks.handles("on_save"):
                self.callbacks.call("on_save", self.trainer, progress.step)
                self.changes.note_user_code()
            self.log.read(progress)  # bad numbers are found before they are saved
            if self.lock is not None:
                self.lock.check()
            broadcast_norm_statistics(self.state.model, self.ranks)  # before they are judged: then all judge alike
            self._compare_ranks()
            self.numbers.check_weights(self.state.model, progress.step, self.ranks.any_rank)
            progress.order = self._sample_order()
            progress.epoch_seconds = perf_counter() - self._epoch_began if progress.position else 0.0
            if progress.position == 0:  # the next epoch begins from here
                self.state.order_generators = order_states(self.feed)
            self.journal.warn_for_all(self.state.gather_state(), "checkpoint")
            is_saved = self.saver.save(self.state) if self.ranks.is_first else None
            self.changes.is_saved = self.ranks.broadcast_object(is_saved)
            self.state.forget_copies()
            self.log.resume_clock()
