"""One optimizer step: slices, weights, clips and steps. The eager one; others compute the same."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from brim.data import Batch, batch_length, slice_batch
from brim.data.randomness.order import even_bounds
from brim.engine.components.loss import Loss, LossOf, as_sum
from brim.engine.components.precision import Precision
from brim.engine.distributed.overlap import Overlap
from brim.engine.distributed.ranks import Ranks, Verdict
from brim.engine.oom.out_of_memory import is_out_of_memory
from brim.engine.splitting.steady_state import SteadyState
from brim.engine.step.nonfinite import step_if_finite

NEVER = -(10**9)
OVERLAP_AFTER = 3  # steps without trouble, on all ranks, before gradients are sent while they are computed


class EagerStep:
    """Calling it with a window of batches makes one optimizer step and returns the mean loss, still on the device.

    The gradient is that of the mean over the whole window: every micro-batch counts by its share of the samples (or of
    what :class:`Loss` counts), ragged tails included.
    """

    def __init__(
        self,
        compute: LossOf,
        optimizer: Optimizer,
        precision: Precision,
        micro_batch: int | None = None,
        clip_norm: float | None = None,
    ) -> None:
        self.compute = compute
        self.optimizer = optimizer
        self.precision = precision
        self.micro_batch = micro_batch
        self.clip_norm = clip_norm
        self.clip_limit: Tensor | None = None  # instead of it, on the device, where a graph reads it
        self.ranks: Ranks | None = None  # who else has a share of the batch
        self.stop_requests: Callable[[], tuple[bool, bool]] = lambda: (
            False,
            False,
        )  # to stop, by a signal or by a word
        self.verdict: Verdict | None = None  # of the last meeting
        self.local = Loss(torch.zeros(()), 0)  # of this rank, in this step
        self.expected = 0  # samples that gradients are means over on this rank
        self.overlap: Overlap | None = None  # for steps whose gradients are sent while they are computed
        self.is_overlapping = False  # this step
        self.had_oom = False  # memory ran out in this step, here
        self._steps_since_oom = 0  # steps in a row in which it ran out nowhere
        self.steady: SteadyState | None = None  # what is moved once for a batch, however it is split
        self.skip_nonfinite = False  # whether an update with numbers that are not finite is left out
        self.has_own_zero_grad = type(optimizer).zero_grad is not Optimizer.zero_grad
        # Reading a loss costs nothing on the CPU, so there a bad one is caught before it reaches the weights. On a
        # device it would stop the queue: there the trainer looks when it logs.
        self.reads_loss = precision.device.type == "cpu"

    def __call__(self, window: Sequence[Batch]) -> Tensor:
        return self.apply(self.gradients(window))

    @property
    def parameters(self) -> list[nn.Parameter]:
        """What the optimizer steps; a group may have been added since the last time."""
        return [parameter for group in self.optimizer.param_groups for parameter in group["params"]]

    def gradients(self, window: Sequence[Batch]) -> Tensor:
        """The mean loss of the window, its gradient in the parameters, clipped. Can be tried again."""
        self.clear_gradients()
        if self.ranks is not None:
            return self._backward_sliced([batch for batch in window if batch_length(batch)])
        if len(window) == 1 and self.micro_batch is None:
            loss = self._backward_whole(window[0])
        else:
            loss = self._backward_sliced(window)
        self.clip()
        return loss

    def all_reduce_gradients(self) -> Tensor:
        """The mean loss over all ranks, and its gradient, clipped. Cannot be tried again: the others are waited for."""
        assert self.ranks is not None
        self.verdict = self.ranks.all_reduce_gradients(
            self.trained, self.local, self.expected, *self.stop_requests(), self.had_oom
        )
        self._steps_since_oom = 0 if self.verdict.had_oom else self._steps_since_oom + 1
        self.clip()
        return self.verdict.loss.mean

    def begin_overlap(self) -> bool:
        """Whether this step's gradients are sent while they are computed: after some calm steps, on all ranks alike."""
        self.had_oom = False
        if self.overlap is not None and not self.overlap.is_for(self.trained):
            self.overlap, self._steps_since_oom = None, 0
        self.is_overlapping = self.overlap is not None and self._steps_since_oom >= OVERLAP_AFTER
        if self.overlap is not None and self.is_overlapping:
            self.overlap.begin()
            self.local = Loss(torch.zeros(()), 0)
        return self.is_overlapping

    def prepare_overlap(self) -> None:
        """In the last step before: take the memory for it. Where there is none, trouble is what all hear of."""
        if self.overlap is None and self._steps_since_oom == OVERLAP_AFTER - 1:
            try:
                self.overlap = Overlap(self.trained)
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
            self.had_oom = self.had_oom or self.overlap is None

    def recompute_without_overlap(self) -> None:
        """All ranks make the step again, after an exchange that broke off: what was sent is not waited for."""
        self._steps_since_oom, self.is_overlapping = min(self._steps_since_oom, 0), False

    def drop_overlap(self) -> bool:
        """Give its memory back; True if there was any."""
        had = self.overlap is not None
        self.overlap = None
        return had

    def finish_all_reduce(self, failed: bool) -> Tensor | None:
        """The mean loss over all ranks, and its gradient, clipped; None where all have to make the step again."""
        assert self.ranks is not None and self.overlap is not None
        self.is_overlapping = False
        verdict = self.ranks.finish_all_reduce(self.overlap, self.local, *self.stop_requests(), failed)
        if verdict is None:
            self._steps_since_oom = NEVER if self.overlap.is_out_of_order else 0
            return None
        self.verdict = verdict
        self.clip()
        return verdict.loss.mean

    @property
    def trained(self) -> list[nn.Parameter]:
        """The parameters that gradients are wanted for."""
        return [parameter for parameter in dict.fromkeys(self.parameters) if parameter.requires_grad]

    def clip(self) -> None:
        """Scale gradients down where their norm is too large."""
        if self.clip_norm is not None:
            self.precision.unscale(self.optimizer)
            if self.clip_limit is None:
                torch.nn.utils.clip_grad_norm_(self.parameters, self.clip_norm)
            else:
                clip_to(self.clip_limit, [p.grad for p in self.parameters if p.grad is not None])

    def apply(self, loss: Tensor) -> Tensor:
        """Let the optimizer step, and return the loss. Cannot be tried again: the weights have moved."""
        if self.skip_nonfinite and self.precision.scaler is None:  # a scaler leaves them out by itself
            return step_if_finite(loss, self.optimizer)
        if not self.reads_loss or math.isfinite(loss.item()):
            self.precision.step(self.optimizer)
        return loss

    def clear_gradients(self) -> None:
        """``zero_grad(set_to_none=True)`` without the profiler hooks around it, which cost more than the work."""
        if self.has_own_zero_grad:
            self.optimizer.zero_grad(set_to_none=True)
            return
        for group in self.optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad = None

    def _backward_whole(self, batch: Batch) -> Tensor:
        """The plain case, with nothing that a loop written by hand would not do."""
        compute = getattr(self.compute, "run", self.compute)  # as it is: nothing has to add up
        with self.precision.autocast():
            loss = compute(batch)
        if type(loss) is not Tensor or loss.dim():
            loss = as_sum(loss, batch_length(batch)).mean
        self.precision.backward(loss)
        return loss.detach()

    def _backward_sliced(self, window: Sequence[Batch]) -> Tensor:
        samples = [batch_length(batch) for batch in window]
        expected = sum(samples)
        total: Tensor = torch.zeros((), device=self.precision.device)
        count: Tensor | float = 0
        slices = [
            (batch, start, stop)
            for batch, length in zip(window, samples, strict=True)
            for start, stop in even_bounds(length, self.micro_batch)
        ]
        overlap = self.overlap if self.is_overlapping else None
        if overlap is not None:
            overlap.weight = expected
        for number, (batch, start, stop) in enumerate(slices):
            if self.steady is not None:
                self.steady.restore() if start else self.steady.take()
            listening = overlap is not None and number == len(slices) - 1
            piece = slice_batch(batch, start, stop) if stop - start < batch_length(batch) else batch
            loss = self._backward_slice(piece, stop - start, expected, listening)
            total = total + loss.total.detach()
            count = count + loss.count
        self.expected = expected
        if self.ranks is None:  # else what was counted everywhere is known when all have met
            self._correct(expected, count)
        self.local = Loss(total, count)
        return self.local.mean

    def _backward_slice(self, piece: Batch, samples: int, expected: int, listening: bool = False) -> Loss:
        with self.precision.autocast():
            loss = as_sum(self.compute(piece), samples)
        if not loss.total.requires_grad and not loss.count:
            return loss  # nothing in it counts
        if listening and self.overlap is not None:
            with self.overlap.listening():
                self.precision.backward(loss.total / expected)
        else:
            self.precision.backward(loss.total / expected)
        return loss

    def _correct(self, expected: int, count: Tensor | float) -> None:
        """Gradients were divided by the number of samples; where something else counts, that is known only now."""
        if isinstance(count, Tensor) and count.device.type == "cpu":
            count = count.item()
        if isinstance(count, Tensor) or (count != expected and expected):
            gradients = [p.grad for p in self.parameters if p.grad is not None]
            torch._foreach_mul_(gradients, expected / (count + (count == 0)))


@torch.no_grad()
def clip_to(limit: Tensor, gradients: Sequence[Tensor]) -> None:
    """``clip_grad_norm_`` with a limit that is read on the device: the same operations, and so the same bits."""
    if not gradients:
        return
    norm = torch.nn.utils.get_total_norm(gradients)
    # A norm in a short format is multiplied by a number of the host in single precision, and rounded afterwards.
    factor = ((norm + 1e-6).reciprocal().to(limit.dtype) * limit).to(norm.dtype).clamp(max=1.0)
    torch._foreach_mul_(list(gradients), factor)
