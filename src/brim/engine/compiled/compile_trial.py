"""Compiling a loss on trial: gradients of the same batches, eager and compiled, from one moment, to which all returns.

For each batch the loss, the gradients, what the forward pass moves, where generators stand and what Python code keeps
are compared. No optimizer steps: it is not compiled, and what other people's optimizers keep could not be put back.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

from brim.data import Batch, batch_length, slice_batch
from brim.data.randomness.generators import generator_states
from brim.engine.captured.host.host_state import hook_of_users, host_state, tensors_in, what_changed
from brim.engine.captured.inputs import alike_copy, own_copy
from brim.engine.captured.moving import ContentWatch
from brim.engine.captured.proof.comparison import (
    Likeness,
    compare_buffers,
    compare_gradients,
    compare_losses,
    loss_sensitivity,
)
from brim.engine.captured.proof.rounding import rounding_of
from brim.engine.captured.proof.step_state import StepState
from brim.engine.captured.report import Refusal, StateNotRestored
from brim.engine.compiled.compile_report import CompileReport
from brim.engine.compiled.compiled_loss import CompiledLoss
from brim.engine.compiled.outside_blocks import OutsideBlocks
from brim.engine.compiled.trial_start import TrialStart
from brim.engine.components.loss import CountedLoss, Loss, LossOf
from brim.engine.sandbox.trial_call import trial_call
from brim.engine.step.eager_step import EagerStep
from brim.engine.step.nonfinite import are_finite
from brim.replaced import replaced

TIMED_SECONDS = 0.25  # at most, for each of the two
LEAST_TIMED, MOST_TIMED = 3, 20
COMPILED = "a compiled step"
LEAST_OUTSIDE = 0.2  # of a forward pass: compiling what is around blocks takes as long as compiling them, or longer
Window = Sequence[Batch]


@dataclass(frozen=True, eq=False)
class TrialOutcome:
    """What gradients of a window came with."""

    loss: float
    gradients: dict[str, Tensor]
    others: dict[str, Tensor]  # what the forward pass moved, or could have
    generators: dict[str, Any]
    in_python: dict[str, Any]
    seconds: float


class CompileTrial:
    """One attempt; :meth:`run` fills a report, or raises, and leaves the training state as it was."""

    def __init__(
        self, eager: EagerStep, counted: CountedLoss, compiled: CompiledLoss, windows: Sequence[Window]
    ) -> None:
        assert counted.model is not None
        self.eager, self.counted, self.compiled, self.windows = eager, counted, compiled, windows
        self.model, self.loss_fn = counted.model, counted.loss_fn
        self.device = eager.precision.device
        self._moving: dict[str, Tensor] = {}  # beside buffers: a teacher's weights

    def run(self, report: CompileReport) -> None:
        """Compile, prove and time; raises where that fails."""
        if (hook := hook_of_users(self.model)) is not None:
            raise Refusal(f"{hook}, and nobody knows what it keeps")
        kept = [part for part in (self.model, self.loss_fn) if isinstance(part, nn.Module)]  # by the snapshot
        call = trial_call(self.model, self.loss_fn, device=self.device, but_for=kept, may_step=False)
        with replaced((self.eager, "on_pass", None)), call as rewind, self.compiled.proving():
            start = TrialStart(self.model, self.loss_fn, self.eager, rewind)
            try:
                likeness = self._prove(start, report)
                start.return_to()
                self._time(report)
            finally:
                self._put_back(start)
        report.likeness = f"proven over {likeness.steps} batches: {likeness}"

    def _put_back(self, start: TrialStart) -> None:
        try:
            start.put_back()
        except Exception as error:
            raise StateNotRestored(
                "the training state could not be restored after a trial of a compiled step"
            ) from error
        self.eager.clear_gradients()
        self.eager.numbers = []

    def _prove(self, start: TrialStart, report: CompileReport) -> Likeness:
        likeness = self._first_look()
        for window in self.windows:
            start.return_to()
            before, in_python = self._others(), _plain_state(self.model, self.loss_fn)
            eager = self._outcome(self.counted.plain, window)
            if (name := what_changed(in_python, eager.in_python)) is not None:
                raise Refusal(f"{name} is changed in Python by every pass, and code would be compiled anew for that")
            start.return_to()
            compiled = self._outcome(self.compiled, window)
            report.seconds += max(0.0, compiled.seconds - eager.seconds)
            self._compare(before, eager, compiled, likeness)
            likeness.steps += are_finite(list(eager.gradients.values()))
        if not likeness.steps:
            raise Refusal("gradients of the steps that it was tried on are not finite, which proves nothing")
        return likeness

    def _first_look(self) -> Likeness:
        """How far rounding lets two results differ, by the operations of one forward pass; and what moves in it."""
        watch, batch = ContentWatch(self.model, self.loss_fn), own_copy(self.windows[0])[0]
        if self.eager.micro_batch is not None:
            batch = slice_batch(batch, 0, min(self.eager.micro_batch, batch_length(batch)))
        outside = OutsideBlocks(self.compiled.blocks, self.device)
        with self.eager.precision.autocast(), outside.watched():
            loss = self.counted.plain(batch)
        self.compiled.only_blocks = bool(self.compiled.blocks) and outside.share < LEAST_OUTSIDE
        self._moving = watch.moved()
        return Likeness(rounding_of(self.model, self.eager.precision, loss.total if isinstance(loss, Loss) else loss))

    def _state(self) -> StepState:
        """Where the tensors are now: a forward pass may put others in their places."""
        return StepState(self.model, self.eager.optimizer, self.eager.precision, self.loss_fn, self._moving)

    def _others(self) -> dict[str, Tensor]:
        state = self._state()
        return state.copies_of(state.others)

    def _outcome(self, run: LossOf, window: Window) -> TrialOutcome:
        began = time.perf_counter()
        loss = float(self._gradients(run, window))
        seconds, names = time.perf_counter() - began, self._state().names
        gradients = {names[id(p)]: p.grad.clone() for p in self.eager.parameters if p.grad is not None}
        in_python = _plain_state(self.model, self.loss_fn)
        return TrialOutcome(loss, gradients, self._others(), generator_states(self.device), in_python, seconds)

    def _gradients(self, run: LossOf, window: Window) -> Tensor:
        self.eager.precision.forget_unscaling()
        with replaced((self.counted, "run", run)):
            return self.eager.gradients(alike_copy(window))

    def _compare(
        self, before: dict[str, Tensor], eager: TrialOutcome, compiled: TrialOutcome, likeness: Likeness
    ) -> None:
        rounding = likeness.rounding
        if not _are_same(eager.generators, compiled.generators):
            raise Refusal(f"{COMPILED} draws other random numbers than an eager one")
        apart = compare_gradients(eager.gradients, compiled.gradients, rounding, COMPILED)
        sensitivity = loss_sensitivity(self._state().named, eager.gradients)
        compare_losses(eager.loss, compiled.loss, sensitivity, rounding, COMPILED)
        if eager.others.keys() != compiled.others.keys() or eager.others.keys() != before.keys():
            raise Refusal(f"{COMPILED} has other buffers than an eager one")
        compare_buffers(before, eager.others, compiled.others, rounding, COMPILED)
        if (name := what_changed(eager.in_python, compiled.in_python)) is not None:
            raise Refusal(f"{COMPILED} leaves something else in {name} than an eager one")
        likeness.gradients = max(likeness.gradients, apart)

    def _time(self, report: CompileReport) -> None:
        """In turns: what else the machine does meets both."""
        times: dict[bool, list[float]] = {False: [], True: []}
        began = time.perf_counter()
        while len(times[True]) < LEAST_TIMED or (
            time.perf_counter() - began < 2 * TIMED_SECONDS and len(times[True]) < MOST_TIMED
        ):
            window = self.windows[len(times[True]) % len(self.windows)]
            for is_compiled, run in ((False, self.counted.plain), (True, self.compiled)):
                times[is_compiled].append(self._seconds(run, window))
        report.eager_seconds, report.compiled_seconds = median(times[False]), median(times[True])

    def _seconds(self, run: LossOf, window: Window) -> float:
        self._wait()
        began = time.perf_counter()
        self._gradients(run, window)
        self._wait()
        return time.perf_counter() - began

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def _plain_state(model: nn.Module, loss_fn: Any) -> dict[str, Any]:
    """What Python code keeps beside tensors, which may be others after every pass."""
    found = host_state(model, loss_fn)
    tensors = {name for name, _ in tensors_in(found)}
    return {name: value for name, value in found.items() if name not in tensors}


def _are_same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return all(
        torch.equal(state, other[name]) if isinstance(state, Tensor) else state == other[name]
        for name, state in one.items()
    )
