"""The step of a sharded model: every rank does the same at the same time, for weights are gathered as they are used."""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from brim.data import Batch, batch_length, slice_batch
from brim.data.randomness.order import rank_bounds
from brim.engine.components.loss import Loss
from brim.engine.distributed.gradient_exchange import GradientExchange, Reduced
from brim.engine.distributed.ranks import Ranks
from brim.engine.numbers.gather_scope import Refused, gathering
from brim.engine.state.sharded_tensors import local_part
from brim.engine.step.eager_step import EagerStep, WindowLoss
from brim.engine.step.nonfinite import are_finite
from brim.engine.step.step_result import StepResult
from brim.errors import DataError, ModelError
from brim.gradient_sums import GradientSums

NO_GATHER = Refused(
    "the model is sharded (strategy='fsdp'), and the loss would compare micro-batches of ranks with each other alone; "
    "use strategy='ddp', which keeps a replica on every rank"
)
# FSDP adds up the gradients that a rank has side by side: those of one layer here and of another one there, where both
# have the same size; the others end in an error of the backend.
UNEVEN = (
    "in this step some parameters have a gradient on some ranks only (layers that are left out for some samples, or at "
    "random), and FSDP then adds gradients of different layers; compute every layer on every rank (with weight 0 where "
    "it does not count), or use strategy='ddp'"
)


class ShardedStep:
    """Micro-batches in lockstep: each rank has as many as the one that needs most, some without a sample of its own.

    FSDP adds gradients up while the backward pass runs, and divides them by the number of ranks.
    """

    def __init__(self, eager: EagerStep, ranks: Ranks) -> None:
        self.eager = eager
        self.ranks = ranks
        self.exchange = GradientExchange(ranks)
        self.largest = 0  # samples in the largest micro-batch of the last step
        self.share = 0  # samples of a batch on the rank that has most, so far
        self._spare: Batch = None

    def gradients(self, window: Sequence[Batch]) -> WindowLoss:
        """This rank's summed loss; the gradients are those of all ranks, over the number of all their samples."""
        eager = self.eager
        eager.clear_gradients()
        eager.numbers = []
        counts = self._counts([batch_length(batch) for batch in window])
        samples_of_all = int(counts.sum())
        total: Tensor = torch.zeros((), device=eager.precision.device)
        count: Tensor | float = 0
        self.largest = 0
        parts = [
            part
            for batch, lengths in zip(window, counts.T.tolist(), strict=True)
            for part in self._micro_batches(batch, lengths)
        ]
        sums = GradientSums(eager.parameters, len(parts))
        for number, (micro_batch, samples) in enumerate(parts):
            if is_last := number == len(parts) - 1:
                sums.give()
            with gathering(NO_GATHER):
                loss = eager.noted_loss(micro_batch, max(samples, 1), counts=samples > 0)
            eager.precision.backward(loss.total * (self.ranks.world / samples_of_all if samples else 0.0))
            if not is_last:
                sums.take()
            if samples:
                total, count = total + loss.total.detach(), count + loss.count
        return WindowLoss(Loss(total, count), samples_of_all)

    def reduce(self, own: WindowLoss) -> Reduced:
        """The loss over all ranks, and the gradients corrected by what it counts, clipped."""
        reduced = self.exchange.reduce_loss(own.loss, self.eager.parameters)
        if reduced.uneven_gradients:
            raise ModelError(UNEVEN)
        self.eager.correct(own.samples, reduced.loss.count)
        self.eager.clip()
        return reduced

    def apply(self, loss: Tensor) -> StepResult:
        """Let the optimizer step, unless a rank has found numbers that are not finite and such steps are skipped."""
        if not self.eager.skip_nonfinite:
            return self.eager.apply(loss)
        gradients = [local_part(p.grad) for p in self.eager.parameters if p.grad is not None]
        if self.ranks.any_rank(not (bool(loss.isfinite()) and are_finite(gradients))):
            return StepResult(torch.full_like(loss, torch.nan))
        self.eager.optimizer.step()
        return StepResult(loss)

    def _counts(self, lengths: list[int]) -> Tensor:
        """How many samples each rank has of each batch."""
        counts = torch.zeros(self.ranks.world, len(lengths), dtype=torch.int64, device=self.eager.precision.device)
        counts[self.ranks.rank] = torch.tensor(lengths, device=counts.device)
        dist.all_reduce(counts)
        return counts.cpu()

    def _micro_batches(self, batch: Batch, lengths: list[int]) -> list[tuple[Batch, int]]:
        """This rank's, with their samples; where it has too few, a sample of another batch stands in and counts 0."""
        length, most, size = lengths[self.ranks.rank], max(lengths), self.eager.micro_batch
        self.share = max(self.share, most)
        number = 1 if size is None else -(-most // size)
        if length:
            self._spare = slice_batch(batch, 0, 1)
        elif self._spare is None:
            raise DataError("the first batch has fewer samples than there are ranks, and fsdp needs one for each")
        bounds = [rank_bounds(0, length, place, number) for place in range(number)]
        self.largest = max(self.largest, *(stop - start for start, stop in bounds))
        return [
            (slice_batch(batch, start, stop) if stop > start else self._spare, stop - start) for start, stop in bounds
        ]
