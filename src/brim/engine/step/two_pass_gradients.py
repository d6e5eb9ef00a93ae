"""The gradient of a loss over a whole batch whose samples are encoded in micro-batches: gradient caching.

With e the encodings of a batch and L their loss, dL/dw = dL/de de/dw: what a sample adds to it needs dL/de at its own
row and nothing of the others. So all micro-batches are encoded without gradients, L and dL/de are computed once, and
each micro-batch is encoded a second time and propagates its rows of dL/de. As much memory is taken as one micro-batch
and the loss need, at the price of a second forward pass.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from brim.data import Batch, batch_length, move_data_to_device, slice_batch
from brim.data.batches.batch import leaves_of, map_leaves
from brim.engine.components.loss import CountedLoss, Loss, as_sum, loss_in
from brim.engine.components.precision import Precision
from brim.engine.components.two_pass import Outputs, TwoPass, check_rows, detached, joined, loss_of_outputs
from brim.engine.gathering.gather_session import GatherSession
from brim.engine.numbers.gather_scope import Refused, gathering
from brim.engine.numbers.pass_notes import Number
from brim.engine.numbers.summed_loss import counted
from brim.engine.oom.kept_window import lent
from brim.engine.oom.out_of_memory import BACKWARD, FORWARD
from brim.engine.oom.snapshot import Snapshot
from brim.engine.splitting.steady_state import SteadyState
from brim.errors import ConfigError

COMPARED_PASSES = 3  # batches whose second pass is compared with the first, and now and then one later
COMPARED_AGAIN = frozenset(4**power for power in range(1, 12))
TOLERANCE, SHORT_TOLERANCE = 1e-3, 2e-2  # of the norm; other kernels with gradients than without round so, of 16 bits
IN_ENCODE = Refused("encode of brim.TwoPass computes samples one by one; gather what it returns, in loss")
Bounds = Sequence[tuple[int, int]]
Between = Callable[[], None]
SetPhase = Callable[[str], None]
Note = Callable[[Sequence[tuple[str, Number]], Tensor | float], None]


class TwoPassGradients:
    """Computes the loss of a batch and its gradients, in as many micro-batches as it is told.

    Both passes compute the same: generators, and buffers that the model moves, begin the second where they began the
    first. Afterwards they are where the first pass and the loss have left them.
    """

    def __init__(self, loss: CountedLoss, two_pass: TwoPass, precision: Precision) -> None:
        self.loss = loss
        self.two_pass = two_pass
        self.precision = precision
        self._snapshots: tuple[Snapshot, Snapshot] | None = None  # before the first pass, and after the loss
        self._batches = 0

    @classmethod
    def of(cls, loss: CountedLoss, precision: Precision) -> "TwoPassGradients | None":
        """Those of a loss in two passes; None of any other."""
        return None if loss.two_pass is None else cls(loss, loss.two_pass, precision)

    def backward(
        self,
        batch: Batch,
        bounds: Bounds,
        expected: int,
        steady: SteadyState | None = None,
        phase: SetPhase = lambda phase: None,
        between: Between = lambda: None,
        before_last: Between = lambda: None,
        note: Note = lambda numbers, count: None,
        session: GatherSession | None = None,
    ) -> Loss:
        """The summed loss of ``batch``, and its gradient over ``expected`` samples in the parameters.

        ``between`` is called after every backward pass but the last, ``before_last`` before that one; ``note`` hears
        what is logged, and what that is a mean over. ``session``: of ranks that gather from each other in the loss.
        """
        if len(bounds) == 1:
            return self._backward_once(batch, expected, steady, phase, before_last, note, session)
        before, after = self._states()
        before.take()
        leaves = detached(joined(self._encoded(batch, bounds, steady, note)))
        loss = self._loss(batch, leaves, note, session)
        phase(BACKWARD)
        if loss.total.requires_grad:
            self.precision.backward(loss.total / expected)
            between()
        if lost := before.beyond_repair():
            raise ConfigError(
                f"{', '.join(lost[:3])} was changed in place while a batch was encoded, so it cannot be encoded a "
                "second time, as brim.TwoPass does in micro-batches; change a copy, or a buffer"
            )
        after.take()
        before.restore()
        self._second_passes(batch, bounds, leaves, steady, phase, between, before_last)
        after.restore()
        return loss

    def _second_passes(
        self,
        batch: Batch,
        bounds: Bounds,
        leaves: Outputs,
        steady: SteadyState | None,
        phase: SetPhase,
        between: Between,
        before_last: Between,
    ) -> None:
        """Encode every micro-batch again, now with gradients, and hand on what the loss has for its rows."""
        gradients = _gradients_of(leaves)
        self._batches += 1
        compares = self._batches <= COMPARED_PASSES or self._batches in COMPARED_AGAIN
        for number, (start, stop) in enumerate(bounds):
            phase(FORWARD)
            if number == len(bounds) - 1:
                before_last()
            outputs = self._encode(batch, start, stop, steady, number == 0)
            if compares:
                _check_repeated(leaves, outputs, start, stop)
            phase(BACKWARD)
            propagate(outputs, gradients, start, stop, is_first=number == 0)
            if number < len(bounds) - 1:
                between()

    def _backward_once(
        self,
        batch: Batch,
        expected: int,
        steady: SteadyState | None,
        phase: SetPhase,
        before_last: Between,
        note: Note,
        session: GatherSession | None,
    ) -> Loss:
        """A single micro-batch is encoded once. The loss has leaves all the same: other ranks may need two passes."""
        samples = batch_length(batch)
        before_last()
        outputs = self._encode(batch, 0, samples, steady, True, note)
        leaves = detached(outputs)
        loss = self._loss(batch, leaves, note, session)
        phase(BACKWARD)
        if loss.total.requires_grad:
            self.precision.backward(loss.total / expected)
            propagate(outputs, _gradients_of(leaves), 0, samples, is_first=True)
        return loss

    def gather_without_samples(self, session: GatherSession) -> None:
        """The part of a rank without a sample of the batch: its loss gathers what others have, and counts nothing."""
        leaves = detached(move_data_to_device(session.all_gather_shapes(None), self.precision.device))
        with self.precision.autocast(), self.loss.notes.taking(), gathering(session):
            found = loss_in(loss_of_outputs(self.two_pass.loss, self.loss.model, leaves), self.loss.notes)
        total = as_sum(found, 1).total
        rows = [leaf for leaf in leaves_of(leaves) if isinstance(leaf, Tensor) and leaf.requires_grad]
        if total.requires_grad:  # not into parameters: what a loss makes of nothing is no number
            torch.autograd.backward(total, inputs=rows)

    def _loss(self, batch: Batch, leaves: Outputs, note: Note, session: GatherSession | None) -> Loss:
        """The summed loss of what was encoded of ``batch``; ranks of a ``session`` exchange their rows for it."""
        if session is not None:
            tell_shapes(session, leaves)
        own, count = self.loss, self.loss.count_of(batch)
        answering = nullcontext() if session is None else gathering(session)
        with self.precision.autocast(), answering, own.notes.taking() as taken:
            found = loss_in(loss_of_outputs(self.two_pass.loss, own.model, leaves), own.notes)
        loss = as_sum(found if count is None else counted(found, count), batch_length(batch))
        if taken.numbers:
            note(taken.numbers, loss.count)
        return loss

    def _states(self) -> tuple[Snapshot, Snapshot]:
        if self._snapshots is None:  # made at the first use: the model may have been moved until then
            made = [Snapshot(self.loss.model, self.precision, self.two_pass) for _ in range(2)]
            self._snapshots = made[0], made[1]
        return self._snapshots

    def _encoded(self, batch: Batch, bounds: Bounds, steady: SteadyState | None, note: Note) -> list[Outputs]:
        """The first pass, which nothing is kept of but its outputs."""
        with torch.no_grad():
            return [
                self._encode(batch, start, stop, steady, number == 0, note)
                for number, (start, stop) in enumerate(bounds)
            ]

    def _encode(
        self, batch: Batch, start: int, stop: int, steady: SteadyState | None, is_first: bool, note: Note | None = None
    ) -> Outputs:
        """What ``encode`` returns for some samples; anything but a row for each of them is refused."""
        if steady is not None:
            steady.take() if is_first else steady.restore()
        micro_batch = slice_batch(batch, start, stop) if stop - start < batch_length(batch) else batch
        # An autocast of its own: weights that were cast without gradients would be used again in the second pass.
        with self.precision.autocast(), gathering(IN_ENCODE), self.loss.notes.taking() as taken:
            outputs = self.two_pass.encode(self.loss.model, lent(micro_batch))
        check_rows(outputs, stop - start)
        if note is not None and taken.numbers:
            note(taken.numbers, stop - start)
        return outputs


def tell_shapes(session: GatherSession, leaves: Outputs) -> None:
    """Let ranks without a sample of this batch know what outputs are like."""
    if session.is_short(session.batch):
        session.all_gather_shapes(map_leaves(_without_rows, leaves))


def _without_rows(leaf: Any) -> Any:
    if not isinstance(leaf, Tensor):
        return leaf
    return (leaf[:0] if leaf.dim() else leaf).detach().cpu().clone()


def _gradients_of(leaves: Outputs) -> Outputs:
    return map_leaves(lambda leaf: leaf.grad if isinstance(leaf, Tensor) else None, leaves)


def propagate(outputs: Outputs, gradients: Outputs, start: int, stop: int, is_first: bool) -> None:
    """The backward pass of some rows. What has no rows is the same in all micro-batches: the first propagates it."""
    pairs = []
    for output, gradient in zip(leaves_of(outputs), leaves_of(gradients), strict=True):
        if gradient is None or not output.requires_grad:
            continue
        if gradient.dim():
            pairs.append((output, gradient[start:stop]))
        elif is_first:
            pairs.append((output, gradient))
    if pairs:
        torch.autograd.backward([output for output, _ in pairs], [gradient for _, gradient in pairs])


def _check_repeated(first: Outputs, second: Outputs, start: int, stop: int) -> None:
    """Refuse an ``encode`` whose second pass computes something else: its gradients would be those of another loss."""
    for whole, again in zip(leaves_of(first), leaves_of(second), strict=True):
        if isinstance(whole, Tensor) and whole.is_floating_point():
            tolerance = SHORT_TOLERANCE if whole.element_size() < 4 else TOLERANCE
            once = (whole[start:stop] if whole.dim() else whole).detach().double().nan_to_num()
            if float((once - again.detach().double().nan_to_num()).norm()) > tolerance * float(once.norm()):
                raise ConfigError(
                    "encode of brim.TwoPass returns something else when it is computed a second time for the same "
                    "samples, so its gradients would be wrong: it depends on how often it was called, or draws from a "
                    "generator of its own; use torch's default generator, or micro-batches that are whole batches"
                )
