"""From what a trainer was handed to a run: what it reads, what it changes, what judges it, and the loop around them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from torch import nn
from torch.optim import Optimizer

from brim.data import DevicePrefetcher, Feed, Loader
from brim.data.randomness.generators import seed_rank
from brim.engine.calling.memory_format import PRESERVE, lay_out
from brim.engine.captured import CapturedStep, release_graphs
from brim.engine.checkpoints.checkpoint import Checkpoints
from brim.engine.checkpoints.resume import continue_run
from brim.engine.checkpoints.saver import Saver
from brim.engine.components.loss_parameters import check_loss_parameters
from brim.engine.components.optimizer import make_optimizer, unused_rate
from brim.engine.components.optimizer_state import match_layouts
from brim.engine.components.parameter_groups import RULES, describe_groups
from brim.engine.components.settings import TrainerSettings
from brim.engine.control.bounds import Bounds
from brim.engine.control.callbacks import Callbacks
from brim.engine.control.dry_run import training_feed
from brim.engine.control.run_schedule import RunSchedule
from brim.engine.control.without_evaluation import check_without_evaluation
from brim.engine.distributed.model_broadcast import broadcast_model
from brim.engine.distributed.ranks import Ranks
from brim.engine.evaluation.evaluation import Evaluator
from brim.engine.evaluation.evaluation_sets import mean_losses
from brim.engine.evaluation.monitor import Monitor
from brim.engine.evaluation.rehearsal import refuse_empty
from brim.engine.run.evaluators import Evaluators
from brim.engine.run.final_weights import FinalWeights
from brim.engine.run.findings import Findings
from brim.engine.run.outside_changes import OutsideChanges
from brim.engine.run.placement import DataPlace
from brim.engine.run.run_evaluations import RunEvaluations
from brim.engine.run.stopping import Stopping
from brim.engine.run.strategy import DP, FSDP
from brim.engine.run.training_run import TrainingRun
from brim.engine.run.training_setup import TrainingSetup
from brim.engine.run_folder.opened_run import OpenedRun
from brim.engine.run_log.logged_numbers import LoggedNumbers
from brim.engine.run_log.run_notes import RunNotes
from brim.engine.run_log.step_log import StepLog
from brim.engine.run_state.beside_model import look_beside
from brim.engine.run_state.progress import Progress
from brim.engine.run_state.sample_order import SampleOrder
from brim.engine.run_state.thawed_parameters import ThawedParameters, UnshardedModel
from brim.engine.run_state.training_state import TrainingState
from brim.engine.run_state.user_order import order_generators
from brim.engine.run_state.user_state import UserState
from brim.engine.run_state.worker_state import remark_on_shares, remark_on_workers
from brim.engine.shares.device_shares import DeviceShares
from brim.engine.shares.recorded_shares import SharesRecorder, run_alerts, shares_recorder
from brim.engine.splitting.batch_norms import batch_norms, follows_batch
from brim.engine.state.extra_state import extra_states, take_extra
from brim.engine.state.gathered_state import GatheredState
from brim.engine.state.host_copy import host_copy
from brim.engine.state.weight_average import KeepsAverage, WeightAverage
from brim.engine.step.guard import GuardedStep
from brim.engine.step.nonfinite import NonfinitePolicy
from brim.engine.step.splitting_check import NORMS_OF_RANKS
from brim.engine.step.threads import StepLike
from brim.errors import ConfigError
from brim.record import Journal, MetricsFile, ProgressBar, RunFolder

if TYPE_CHECKING:
    from brim.engine.fsdp import ShardedTraining
    from brim.engine.fsdp.sharded_guard import ShardedGuard


@dataclass(frozen=True)
class RunParts:
    """What a run is made of, before it has a folder."""

    feed: Feed
    state: TrainingState
    evaluator: Evaluator | None
    sharded: ShardedTraining | None


@dataclass(frozen=True)
class Assembly:
    """Puts runs of a trainer together; ``gpus`` are those that this process computes on."""

    evaluators: Evaluators
    schedule: RunSchedule
    bounds: Bounds
    callbacks: Callbacks
    gpus: int = 1

    @property
    def setup(self) -> TrainingSetup:
        return self.evaluators.setup

    @property
    def settings(self) -> TrainerSettings:
        return self.setup.settings

    @property
    def ranks(self) -> Ranks:
        return self.setup.ranks

    @property
    def journal(self) -> Journal:
        return self.setup.journal

    def parts(self, train_data: Any, eval_data: Any, test_data: Any) -> RunParts:
        """What a run reads, what it changes, and what judges it. Whatever cannot work is refused here, unwritten."""
        setup, settings = self.setup, self.settings
        feed = training_feed(train_data, settings)
        refuse_empty(eval_data=eval_data, test_data=test_data)
        self._place_model()
        sharded = None if self.ranks.is_alone else self._broadcast_start()
        model = setup.model if sharded is None else sharded.module
        optimizer = self._optimizer(model)
        scheduler, record = self.schedule.make(
            optimizer, self.bounds.total_steps(feed), self.ranks.world, self.gpus
        )  # fmt: skip
        self.journal.warn_for_all(self.bounds.epochs_passed_over(feed), "bounds")
        self.callbacks.state()  # what a checkpoint could not hold is refused before anything is trained
        ema = None if settings.ema is None else _average(model, settings.ema, sharded)
        setup.precision.tells_if_stepped = scheduler is not None or ema is not None
        copies = [] if sharded is None else [sharded.module]
        beside = look_beside(setup.model, copies, setup.loss_fn, optimizer, self.ranks)
        evaluator = None if eval_data is None else self.evaluators.evaluator(eval_data, sharded)
        if evaluator is None:
            warn = self._warn("evaluation") if self.ranks.is_first else lambda sentence: None
            check_without_evaluation(settings, scheduler, test_data is not None, warn)
        self.evaluators.monitor(evaluator)  # a name that cannot be
        if self.ranks.is_alone:
            self.evaluators.rehearse(train_data, eval_data, test_data, evaluator)
        say = partial(self.journal.say, kind="resume")
        readers = [train_data, *self.callbacks.callbacks]
        kept = [optimizer, scheduler, *self.callbacks.kept_objects, *(held for _, held in order_generators(feed))]
        user_state = UserState(model, setup.loss_fn, setup.device, kept, readers, say)
        state = TrainingState(
            model, optimizer, scheduler, setup.precision, Progress(), self.ranks, beside=beside, schedule=record,
            ema=ema, callbacks=self.callbacks, gathered=None if sharded is None else GatheredState(),
            user_state=user_state, joins=not isinstance(settings.optimizer, Optimizer),
        )  # fmt: skip
        if sharded is not None:
            sharded.attach(state)
        return RunParts(feed, state, evaluator, sharded)

    def run(self, parts: RunParts, opened: OpenedRun, resumes: bool, trainer: Any) -> TrainingRun:
        """The run itself, in its folder; ``trainer`` is what callbacks are handed."""
        setup, settings, state, feed = self.setup, self.settings, parts.state, parts.feed
        checkpoints = Checkpoints(opened.folder.checkpoints, settings.keep)
        monitor = self._begin(parts, checkpoints, resumes)
        total_steps = self.bounds.total_steps(feed)
        self.schedule.report(state, total_steps, self.bounds.epoch_steps(feed))
        numbers = NonfinitePolicy(settings.on_nan, opened.own.path, self._warn("numbers"))
        place = DataPlace(feed, setup.device, self.journal, setup.ranks.identity)
        place.choose_path(awaits_forecast=settings.fixed_micro_batch is None)
        findings = Findings(state.progress, place, RunNotes(self.journal), self.evaluators.choice.may_capture)
        step, guard, captured = self._step(parts, findings, total_steps)
        guard.step.skip_nonfinite = numbers.skip_nonfinite
        times = feed.times if isinstance(feed, Loader) else None
        shares = shares_recorder(setup.device, settings.accumulation)
        if isinstance(guard, GuardedStep) and isinstance(shares, DeviceShares):
            guard.step.on_pass = shares.ends_pass
        prefetcher = DevicePrefetcher(
            setup.device, times, floats=setup.precision.weights_dtype, on_copy=shares.note_copy
        )
        saver = Saver(checkpoints, partial(self.journal.say, kind="checkpoint"), self._warn("checkpoint"))
        log = self._log(opened.own, state, total_steps, prefetcher, numbers, shares)
        stopping = Stopping(self.ranks)
        final = FinalWeights(state, saver, self.bounds, self.callbacks, self.ranks, self.journal)
        unsharded = None if parts.sharded is None else UnshardedModel(setup.model, state.model)
        changes = OutsideChanges(state, captured, unsharded)
        evaluations = RunEvaluations(
            parts.evaluator, monitor, state, self.bounds, self.callbacks, trainer, log, self.journal, self.ranks,
            saver, changes, stopping, final, watch=guard.watch,
        )  # fmt: skip
        run = TrainingRun(
            ranks=self.ranks, state=state, step=step, guard=guard, captured=captured, feed=feed, prefetcher=prefetcher,
            seed=settings.seed, accumulation=settings.accumulation, bounds=self.bounds, evaluations=evaluations,
            saver=saver, numbers=numbers, findings=findings, log=log, journal=self.journal, callbacks=self.callbacks,
            trainer=trainer, stopping=stopping, final=final, changes=changes, sharded=parts.sharded, lock=opened.lock,
            thawed=ThawedParameters(state.trained.may_join, state.optimizer, self._warn("optimizer")),
        )  # fmt: skip
        numbers.batches_of = run.batches_of
        return run

    def _begin(self, parts: RunParts, checkpoints: Checkpoints, resumes: bool) -> Monitor:
        """Seed this rank, and go on from the newest checkpoint; returns the metric that decides from here."""
        settings, state = self.settings, parts.state
        seed_rank(settings.seed, self.ranks.rank)
        if resumes:
            order = SampleOrder.of(parts.feed, settings.seed, settings.accumulation, settings.limit_train_batches)
            continue_run(checkpoints, state, self.ranks, self.journal, order)
            self.journal.warn_for_all(remark_on_workers(parts.feed, state.progress.position), "resume")
        if not self.ranks.is_alone:
            self.journal.warn_for_all(remark_on_shares(parts.feed), "data")
        monitor = self.evaluators.monitor(parts.evaluator)
        if parts.evaluator is not None:
            self.evaluators.follow(state.scheduler, monitor, state.progress)
        return monitor

    def _step(
        self, parts: RunParts, findings: Findings, total_steps: int | None
    ) -> tuple[StepLike, GuardedStep | ShardedGuard, CapturedStep | None]:
        """The step as it is called, the guarded one within, and the part that captures it, where it may be captured."""
        choice = self.evaluators.choice
        step, guard = choice.uncaptured(parts.state, findings, parts.sharded)
        step = choice.compiled(step, guard, findings, total_steps)
        step, captured = choice.captured(
            step, guard, findings, lr_moves=parts.state.scheduler is not None,
            has_onlookers=self.callbacks.watches_steps, total_steps=total_steps,
        )  # fmt: skip
        if isinstance(guard, GuardedStep):  # evaluations of shards are not captured
            kept = [one.captured for one in mean_losses(parts.evaluator) if one.captured is not None]
            guard.memory_reclaimers.extend(partial(release_graphs, one) for one in kept)
        return step, guard, captured

    def _optimizer(self, model: nn.Module) -> Optimizer:
        given, lr = self.settings.optimizer, float(self.settings.lr)
        optimizer = make_optimizer(given, model, lr)
        check_loss_parameters(self.setup.loss_fn, optimizer)
        self.journal.warn_for_all(unused_rate(given, optimizer, lr), "optimizer")
        if isinstance(given, Mapping) and any(rule in given for rule in RULES):
            for line in describe_groups(optimizer, model):
                self.journal.say(line, "optimizer")
        return optimizer

    def _place_model(self) -> None:
        """The model as it is trained: in the type of its weights, and on the device unless it is to be sharded."""
        setup = self.setup
        setup.precision.check_optimizer(self.settings.optimizer)
        place = setup.precision.convert if setup.strategy == FSDP else setup.precision.placed
        place(setup.model, setup.loss_fn)
        if setup.precision.remark and self.ranks.is_first:
            self.journal.say(setup.precision.remark, "precision")
        self._lay_out_model()

    def _lay_out_model(self) -> None:
        """Weights as ``memory_format`` says, and the state of an optimizer that has stepped already."""
        setup, wish = self.setup, self.settings.memory_format
        if wish == PRESERVE:
            return
        if setup.strategy in (DP, FSDP):
            raise ConfigError(
                f"memory_format={wish!r} is not for strategy={setup.strategy!r}, whose weights are copied and cut in "
                "the order in which they come; leave it out, or use one GPU or strategy='ddp'"
            )
        if not lay_out(setup.model, wish):
            none = f"memory_format={wish!r} has no effect: the model has no convolutions"
            self.journal.warn_for_all(none, "memory_format")
        if isinstance(self.settings.optimizer, Optimizer):
            match_layouts(self.settings.optimizer)

    def _broadcast_start(self) -> ShardedTraining | None:
        """Every rank begins with the first one's weights, or its part of them."""
        setup = self.setup
        apart = [norm for norm in batch_norms(setup.model) if not isinstance(norm, nn.SyncBatchNorm)]
        if any(follows_batch(norm) for norm in apart):
            self.journal.warn_for_all(NORMS_OF_RANKS)
        broadcast_model(setup.model, self.ranks)
        take_extra(setup.model, self.ranks.broadcast_object(host_copy(extra_states(setup.model))))
        if setup.strategy != FSDP:
            return None
        if isinstance(self.settings.optimizer, Optimizer):
            raise ConfigError(
                "strategy='fsdp' trains a sharded copy, which an optimizer that exists already does not know; pass "
                "its name, or a function of the parameters"
            )
        from brim.engine.fsdp import ShardedTraining  # what torch needs for it takes a second to import

        return ShardedTraining(setup.model, setup.loss_fn, self.ranks, setup.precision, setup.notes)

    def _log(
        self,
        own: RunFolder,
        state: TrainingState,
        total_steps: int | None,
        prefetcher: DevicePrefetcher,
        numbers: NonfinitePolicy,
        shares: SharesRecorder,
    ) -> StepLog:
        bar = ProgressBar(self.journal.console, total_steps, not self.ranks.is_first, self.journal.cell)
        file = MetricsFile(own, self.settings.loggers if self.ranks.is_first else [], self._warn("loggers"))
        return StepLog(
            file, bar, state.optimizer, self.settings.log_every, self.setup.device, shares,
            feed_times=prefetcher.times, on_nonfinite=numbers.on_nonfinite, logged=LoggedNumbers(self.ranks),
            alerts=run_alerts(self.setup.device, self.journal, self.ranks.is_first),
        )  # fmt: skip

    def _warn(self, kind: str) -> Any:
        return partial(self.journal.warn, kind=kind)


def _average(model: nn.Module, decay: float, sharded: ShardedTraining | None) -> KeepsAverage:
    return WeightAverage(model, decay) if sharded is None else sharded.average(decay)
