"""The step of a sharded model: every rank does the same at the same time, for weights are gathered as they are used."""

from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn

from brim.data import Batch, batch_length, slice_batch
from brim.data.randomness.order import rank_bounds
from brim.engine.components.loss import Loss, as_sum
from brim.engine.components.optimizer_state import allocate_state
from brim.engine.distributed.collective_recovery import CollectiveRecovery
from brim.engine.fsdp.growth import Growth
from brim.engine.fsdp.shards import Shards
from brim.engine.oom.ladder import Ladder
from brim.engine.oom.snapshot import Snapshot
from brim.engine.splitting.loss_verdict import LossVerdict
from brim.engine.state.sharded_tensors import local_part
from brim.engine.step.eager_step import EagerStep
from brim.engine.step.guard import GuardedStep
from brim.engine.step.nonfinite import are_finite
from brim.errors import CannotFit, DataError


class ShardedStep(EagerStep):
    """Slices in lockstep: each rank has as many as the one that needs most, some of them without a sample of its own.

    FSDP adds gradients up while the backward pass runs, and divides them by the number of ranks.
    """

    shards: Shards
    _spare: Batch = None
    largest = 0  # samples in the largest slice of the last step
    share = 0  # samples of a batch on the rank that has most, so far

    def gradients(self, window: Sequence[Batch]) -> Tensor:
        assert self.ranks is not None
        self.clear_gradients()
        counts = self._counts([batch_length(batch) for batch in window])
        self.expected = int(counts.sum())
        total: Tensor = torch.zeros((), device=self.precision.device)
        count: Tensor | float = 0
        self.largest = 0
        for batch, lengths in zip(window, counts.T.tolist(), strict=True):
            for piece, samples in self._pieces(batch, lengths):
                loss = self._backward_piece(piece, samples)
                if samples:
                    total, count = total + loss.total.detach(), count + loss.count
        self.local = Loss(total, count)
        return self.local.mean

    def _counts(self, lengths: list[int]) -> Tensor:
        """How many samples each rank has of each batch."""
        assert self.ranks is not None
        told = torch.zeros(self.ranks.world, len(lengths), dtype=torch.int64, device=self.precision.device)
        told[self.ranks.rank] = torch.tensor(lengths, device=told.device)
        dist.all_reduce(told)
        return told.cpu()

    def _pieces(self, batch: Batch, lengths: list[int]) -> list[tuple[Batch, int]]:
        """This rank's slices; where it has fewer samples than slices, one of another batch stands in, and counts 0."""
        assert self.ranks is not None
        length, most = lengths[self.ranks.rank], max(lengths)
        self.share = max(self.share, most)
        slices = 1 if self.micro_batch is None else -(-most // self.micro_batch)
        if length:
            self._spare = slice_batch(batch, 0, 1)
        elif self._spare is None:
            raise DataError("the first batch has fewer samples than there are ranks, and fsdp needs one for each")
        bounds = [rank_bounds(0, length, number, slices) for number in range(slices)]
        self.largest = max(self.largest, *(stop - start for start, stop in bounds))
        return [
            (slice_batch(batch, start, stop) if stop > start else self._spare, stop - start) for start, stop in bounds
        ]

    def _backward_piece(self, piece: Batch, samples: int) -> Loss:
        assert self.ranks is not None
        with self.precision.autocast():
            loss = as_sum(self.compute(piece), max(samples, 1))
        weight = self.ranks.world / self.expected if samples else 0.0
        self.precision.backward(loss.total * weight)
        return loss

    def all_reduce_gradients(self) -> Tensor:
        assert self.ranks is not None
        self.verdict = self.ranks.reduce_loss(self.local, *self.stop_requests())
        self._correct(self.expected, self.verdict.loss.count)
        self.clip()
        return self.verdict.loss.mean

    def apply(self, loss: Tensor) -> Tensor:
        assert self.ranks is not None
        if self.skip_nonfinite:
            gradients = [local_part(p.grad) for p in self.parameters if p.grad is not None]
            bad = not (bool(loss.isfinite()) and are_finite(gradients))
            if self.ranks.any_rank(bad):
                return torch.full_like(loss, torch.nan)
            self.optimizer.step()
            return loss
        return super().apply(loss)


class ShardedGuard(GuardedStep):
    """Out of memory on one rank: all of them build their shards again, and make the same step in smaller slices."""

    step: ShardedStep
    recovery: CollectiveRecovery
    keep_size: Callable[[int], None]
    checkpointing: bool | str | None
    growth: Growth

    def __call__(self, window: Sequence[Batch]) -> Tensor:
        self._take_snapshot()
        self.ask(window)
        self._keep(window)
        self.growth.begin(self.step.micro_batch)
        loss = self.recovery.run(
            lambda: self._attempt_together(window), "step", self._next_size, self._take_smaller,
            undo=self._restore,
        )  # fmt: skip
        loss = self._apply(loss)
        self.made += 1
        self.kept.forget()
        larger = self.growth.end(self.step.micro_batch, self.step.largest, self.step.share)
        if larger is not None:
            self._take(larger)
            if self.recovery.ranks.is_first:
                self.tell(f"there is room for more: slices of {larger} are tried", micro_batch=larger)
        return loss

    def _attempt_together(self, window: Sequence[Batch]) -> Tensor:
        self.step.gradients(self.kept.lend() or window)
        if len(self.step.optimizer.param_groups) != self._groups_with_state:
            allocate_state(self.step.optimizer)
            self._groups_with_state = len(self.step.optimizer.param_groups)
        return self.step.all_reduce_gradients()

    def _next_size(self) -> int:
        """This rank has no memory for slices as they are."""
        self.watch.ran_out()
        return self.growth.after_failure(self.step.largest)

    def _take_smaller(self, size: int) -> None:
        """All are back together, at the moment before the step: slices of this size from now on."""
        self.failures += 1
        self.growth.failed(self.step.micro_batch or self.step.share)
        verdict = self.splitting.verdict
        may_be = verdict is None or verdict.gives_count or verdict.lacks_memory  # the last was warned of
        if self.sliceable is False or not (self.sliceable or may_be):
            raise CannotFit(f"a rank has no memory for its part of the batch; {self.splitting.why_whole()}")
        self._take(size)

    def _take(self, size: int) -> None:
        self.step.micro_batch = size
        self.keep_size(size)

    def ask(self, window: Sequence[Batch]) -> None:
        """Once: a sharded model is asked about on a copy, which takes its time."""
        if not self._is_asked:
            super().ask(window)

    def judge(self, batches: Sequence[Batch], again: bool = False) -> LossVerdict:
        """As the first rank finds on the user's own model: a sharded one computes only where all ranks do."""
        first = next(iter(batches), None)
        self.splitting.settle(self.step.shards.judge(first, self.step.precision))
        assert self.splitting.verdict is not None
        return self.splitting.verdict

    def take_module(self, module: nn.Module) -> None:
        """The module is another one: what is remembered of its buffers is that one's from now on."""
        self.model = module
        self.snapshot = Snapshot(module, self.step.precision, self.step.shards.loss_fn)
        self._take_snapshot()  # what was undone is the moment before the step
        self.ladder = Ladder(module, self.checkpointing)
