"""The sharded step as a transaction: it happens whole, or all ranks make it again in smaller micro-batches."""

from collections.abc import Callable, Sequence

from torch import nn

from brim.data import Batch
from brim.engine.components.settings import TrainerSettings
from brim.engine.distributed.collective_recovery import CollectiveRecovery
from brim.engine.distributed.gradient_exchange import Reduced
from brim.engine.fsdp.sharded_step import ShardedStep
from brim.engine.fsdp.shards import ShardedModel
from brim.engine.oom.ladder import Ladder
from brim.engine.oom.lockstep_search import LockstepSearch, Room
from brim.engine.oom.memory_watch import MemoryWatch
from brim.engine.oom.snapshot import Snapshot
from brim.engine.step.splitting_check import Tell
from brim.engine.step.step_result import StepResult
from brim.engine.step.transaction import Transaction
from brim.errors import CannotFit


class ShardedGuard:
    """Out of memory on one rank: all of them build their shards again, and make the same step in smaller micro-batches.

    ``keep_size`` hears of each new size. The rest is as in :class:`GuardedStep`, of whose parts this one is made.
    """

    def __init__(
        self,
        sharded: ShardedStep,
        shards: ShardedModel,
        recovery: CollectiveRecovery,
        tell: Tell,
        keep_size: Callable[[int], None],
        settings: TrainerSettings,
    ) -> None:
        step = sharded.eager
        self.step = step
        self.sharded = sharded
        self.exchange = sharded.exchange
        self.shards = shards
        self.model = shards.module
        self.recovery = recovery
        self.tell = tell
        self.keep_size = keep_size
        self.checkpointing = settings.checkpointing
        # A sharded model computes only where all ranks do: the first rank judges the user's own, on a copy, for all.
        self.transaction = Transaction(step, self.model, sharded.ranks, tell, settings.sliceable, shards.judge)
        self.splitting = self.transaction.splitting
        self.watch = MemoryWatch(step.precision.device)
        self.ladder = Ladder(self.model, settings.checkpointing)
        self.search = LockstepSearch(most=step.micro_batch)
        self.failures = 0

    @property
    def micro_batch(self) -> int | None:
        """Samples in a micro-batch now; None where batches go through whole."""
        return self.step.micro_batch

    def __call__(self, window: Sequence[Batch]) -> StepResult:
        self.transaction.begin(window)
        self.search.begin()
        if self.search.is_due(self.step.micro_batch):
            self.watch.begin()
        reduced = self.recovery.run(
            lambda: self._attempt(window), "step", self._next_size, self._take_smaller, undo=self.transaction.restore
        )
        loss, stepped, *_ = self.transaction.apply(self.sharded.apply, reduced.loss.mean)
        if self.step.skip_nonfinite:
            self.transaction.snapshot.restore_buffers_if_nonfinite(loss)
        self.recovery.steps_made = self.transaction.made
        self.search.note_success()
        self._grow()
        return StepResult(loss, stepped, reduced.signalled, reduced.stop_requested)

    def _grow(self) -> None:
        """Now and then, after the same steps on all ranks: larger micro-batches where every rank has room for them."""
        size, largest, ranks = self.step.micro_batch, self.sharded.largest, self.recovery.ranks
        if size is None or not self.search.is_due(size):
            return
        if has_more := self.watch.has_more_memory():
            self.watch.note_usable_memory()
        own = Room(has_more, self.watch.largest_fitting(largest) if largest else None)
        larger = self.search.larger(size, ranks.all_gather_object(own), self.sharded.share)
        if larger is not None:
            self._take(larger)
            if ranks.is_first:
                self.tell(f"there is memory for more: trying micro-batches of {larger}", micro_batch=larger)

    def _attempt(self, window: Sequence[Batch]) -> Reduced:
        own = self.sharded.gradients(self.transaction.kept.lend() or window)
        self.transaction.reserve_state()
        return self.sharded.reduce(own)

    def _next_size(self) -> int:
        """This rank has no memory for micro-batches as they are."""
        self.watch.note_oom()
        return self.search.after_failure(self.sharded.largest)

    def _take_smaller(self, size: int) -> None:
        """The group is formed again, at the moment before the step: micro-batches of this size from now on."""
        self.failures += 1
        self.search.note_oom(self.step.micro_batch or self.sharded.share)
        verdict, sliceable = self.splitting.verdict, self.splitting.sliceable
        may_be = verdict is None or verdict.gives_count or verdict.lacks_memory  # the last was warned of
        if sliceable is False or not (sliceable or may_be):
            raise CannotFit(f"a rank has no memory for its part of the batch; {self.splitting.why_whole()}")
        self._take(size)

    def _take(self, size: int) -> None:
        self.step.micro_batch = size
        self.keep_size(size)

    def take_module(self, module: nn.Module) -> None:
        """The module is another one: what is remembered of its buffers is that one's from now on."""
        self.model = self.transaction.model = module
        self.transaction.snapshot = Snapshot(module, self.step.precision, self.shards.loss_fn)
        self.transaction.take_snapshot()  # what was undone is the moment before the step
        self.ladder = Ladder(module, self.checkpointing)
