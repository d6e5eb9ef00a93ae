"""One optimizer step: micro-batches, their gradients, the clip, the optimizer. Other steps compute the same."""

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from brim.data import Batch, batch_length, slice_batch
from brim.data.randomness.order import even_bounds
from brim.engine.components.loss import Loss, LossOf, as_sum, counted_in
from brim.engine.components.precision import Precision
from brim.engine.gathering.gather_session import GatherSession
from brim.engine.numbers.pass_notes import LoggedNumber, Number, PassNotes
from brim.engine.oom.out_of_memory import BACKWARD, CLIPPING, FORWARD
from brim.engine.splitting.steady_state import SteadyState
from brim.engine.step.nonfinite import step_if_finite
from brim.engine.step.step_result import StepResult
from brim.engine.step.two_pass_gradients import TwoPassGradients
from brim.gradient_sums import GradientSums

NOTHING = nullcontext()


class WindowLoss(NamedTuple):
    """The summed loss of a window, and over how many samples its gradients are means."""

    loss: Loss
    samples: int


class EagerStep:
    """Calling it with a window of batches makes one optimizer step; the mean loss stays on the device.

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
        self.notes = getattr(counted_in(compute), "notes", None) or PassNotes()  # what the loss says beside itself
        self.numbers: list[LoggedNumber] = []  # that were logged in the passes of the last step
        self.phase = FORWARD  # what is being computed, for whoever runs out of memory
        self.steady: SteadyState | None = None  # what is moved once for a batch, however it is split
        self.on_pass: Callable[[], None] | None = None  # called where one pass ends, and the next begins
        self.skip_nonfinite = False  # whether an update with numbers that are not finite is left out
        self.has_own_zero_grad = type(optimizer).zero_grad is not Optimizer.zero_grad
        # Reading a loss costs nothing on the CPU, so there a bad one is caught before it reaches the weights. On a
        # device it would stop the queue: there the trainer looks when it logs.
        self.reads_loss = precision.device.type == "cpu"
        counted = counted_in(compute)
        self.two_passes = None if counted is None else TwoPassGradients.of(counted, precision)

    def __call__(self, window: Sequence[Batch]) -> StepResult:
        return self.apply(self.gradients(window))

    @property
    def parameters(self) -> list[nn.Parameter]:
        """What the optimizer steps; a group may have been added since the last time."""
        return [parameter for group in self.optimizer.param_groups for parameter in group["params"]]

    def gradients(self, window: Sequence[Batch]) -> Tensor:
        """The mean loss of the window, its gradient in the parameters, clipped. Can be tried again."""
        self.phase = FORWARD
        self.clear_gradients()
        if len(window) == 1 and self.micro_batch is None:
            loss = self._backward_whole(window[0])
        else:
            found = self.backward(window)
            self.correct(found.samples, found.loss.count)
            loss = found.loss.mean
        self.clip()
        return loss

    @property
    def trained(self) -> list[nn.Parameter]:
        """The parameters that gradients are wanted for."""
        return [parameter for parameter in dict.fromkeys(self.parameters) if parameter.requires_grad]

    def clip(self) -> None:
        """Scale gradients down where their norm is too large."""
        if self.clip_norm is not None:
            self.phase = CLIPPING
            self.precision.unscale(self.optimizer)
            if self.clip_limit is None:
                torch.nn.utils.clip_grad_norm_(self.parameters, self.clip_norm)
            else:
                clip_to(self.clip_limit, [p.grad for p in self.parameters if p.grad is not None])

    def apply(self, loss: Tensor) -> StepResult:
        """Let the optimizer step. Cannot be tried again: the weights have moved."""
        if self.skip_nonfinite and self.precision.scaler is None:  # a scaler leaves them out by itself
            return StepResult(step_if_finite(loss, self.optimizer))
        if not self.reads_loss or math.isfinite(loss.item()):
            return StepResult(loss, self.precision.step(self.optimizer))
        return StepResult(loss)

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
        self.numbers = []
        with self.precision.autocast(), self.notes.taking() as taken:
            loss = compute(batch)
        if taken.numbers:
            self.note(taken.numbers, batch_length(batch))
        if type(loss) is not Tensor or loss.dim():
            loss = as_sum(loss, batch_length(batch)).mean
        self._backward_pass(loss)
        return loss.detach()

    def backward(self, window: Sequence[Batch], around_last: AbstractContextManager[Any] = NOTHING) -> WindowLoss:
        """The summed loss of the window in micro-batches, its gradient over the number of samples in the parameters.

        ``around_last`` is entered for the backward pass of the last micro-batch.
        """
        self.numbers = []
        samples = [batch_length(batch) for batch in window]
        expected = sum(samples)
        total: Tensor = torch.zeros((), device=self.precision.device)
        count: Tensor | float = 0
        parts = [
            (batch, start, stop)
            for batch, length in zip(window, samples, strict=True)
            for start, stop in even_bounds(length, None if self._is_two_pass(length) else self.micro_batch)
        ]
        sums = GradientSums(self.parameters, len(parts) + sum(map(self._second_passes, samples)))
        for number, (batch, start, stop) in enumerate(parts):
            self.phase = FORWARD
            is_last = number == len(parts) - 1
            if self._is_two_pass(stop - start):
                bounds = even_bounds(stop - start, self.micro_batch)
                loss = self.in_two_passes(batch, bounds, expected, sums, is_last)
            else:
                if is_last:
                    sums.give()
                if self.steady is not None:
                    self.steady.restore() if start else self.steady.take()
                around = around_last if is_last else NOTHING
                micro_batch = slice_batch(batch, start, stop) if stop - start < batch_length(batch) else batch
                loss = self.backward_micro_batch(micro_batch, stop - start, expected, around)
            if not is_last:
                sums.take()
            total = total + loss.total.detach()
            count = count + loss.count
        return WindowLoss(Loss(total, count), expected)

    def _is_two_pass(self, samples: int) -> bool:
        """Whether so many samples are encoded in micro-batches, and their loss is computed over all of them."""
        return self.two_passes is not None and self.micro_batch is not None and samples > self.micro_batch

    def _second_passes(self, samples: int) -> int:
        return len(even_bounds(samples, self.micro_batch)) if self._is_two_pass(samples) else 0

    def in_two_passes(
        self,
        batch: Batch,
        bounds: Sequence[tuple[int, int]],
        expected: int,
        sums: GradientSums,
        is_last: bool,
        session: GatherSession | None = None,
    ) -> Loss:
        """The summed loss of a batch that is encoded in the micro-batches between ``bounds``, and its gradients."""
        assert self.two_passes is not None
        return self.two_passes.backward(
            batch, bounds, expected, self.steady, phase=self._enter, between=sums.take,
            before_last=sums.give if is_last else lambda: None, note=self.note, session=session,
        )  # fmt: skip

    def _enter(self, phase: str) -> None:
        self.phase = phase

    def backward_micro_batch(
        self, batch: Batch, samples: int, expected: int, around: AbstractContextManager[Any] = NOTHING
    ) -> Loss:
        """The summed loss of a micro-batch, and its gradient over ``expected`` samples."""
        loss = self.noted_loss(batch, samples)
        if not loss.total.requires_grad and not loss.count:
            return loss  # nothing in it counts
        with around:
            self._backward_pass(loss.total / expected)
        return loss

    def _backward_pass(self, loss: Tensor) -> None:
        self.phase = BACKWARD
        if self.on_pass is None:
            self.precision.backward(loss)
            return
        self.on_pass()
        self.precision.backward(loss)
        self.on_pass()

    def noted_loss(self, batch: Batch, samples: int, counts: bool = True) -> Loss:
        """The summed loss of a micro-batch; what it logged is noted, unless the micro-batch does not count."""
        with self.precision.autocast(), self.notes.taking() as taken:
            loss = as_sum(self.compute(batch), samples)
        if counts and taken.numbers:
            self.note(taken.numbers, loss.count)
        return loss

    def note(self, numbers: Sequence[tuple[str, Number]], count: Tensor | float) -> None:
        """Keep what a pass logged, as means over ``count``: what its loss is a mean over."""
        count = count.detach() if isinstance(count, Tensor) else count
        self.numbers += [LoggedNumber(name, value, count) for name, value in numbers]

    def correct(self, samples: int, count: Tensor | float) -> None:
        """Gradients were divided by the number of samples; where something else counts, that is known only now."""
        if isinstance(count, Tensor) and count.device.type == "cpu":
            count = count.item()
        if isinstance(count, Tensor) or (count != samples and samples):
            gradients = [p.grad for p in self.parameters if p.grad is not None]
            torch._foreach_mul_(gradients, samples / (count + (count == 0)))


@torch.no_grad()
def clip_to(limit: Tensor, gradients: Sequence[Tensor]) -> None:
    """``clip_grad_norm_`` with a limit that is read on the device: the same operations, and so the same bits."""
    if not gradients:
        return
    norm = torch.nn.utils.get_total_norm(gradients)
    # A norm in a short format is multiplied by a number of the host in single precision, and rounded afterwards.
    factor = ((norm + 1e-6).reciprocal().to(limit.dtype) * limit).to(norm.dtype).clamp(max=1.0)
    torch._foreach_mul_(list(gradients), factor)
