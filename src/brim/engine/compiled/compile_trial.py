"""Compiling a step on trial: the same batches eager and compiled from one state, which is put back in the end.

For each batch the loss and the gradients are computed both ways at the same weights, and so is what the forward pass
moves and where the generators stand. Then the optimizer, which is not compiled, makes its update of the compiled
gradients, and the next batch is compared at the weights that came of it.
"""

import time
from collections.abc import Sequence
from statistics import median

import torch
from torch import Tensor

from brim.data import Batch, batch_length, slice_batch
from brim.engine.captured.inputs import own_copy
from brim.engine.captured.proof.comparison import (
    Likeness,
    compare_buffers,
    compare_gradients,
    compare_losses,
    sway_of,
)
from brim.engine.captured.proof.rounding import Rounding, rounding_of
from brim.engine.captured.proof.step_proof import Outcome, device_generator
from brim.engine.captured.proof.step_state import StateCopy, StepState
from brim.engine.captured.report import NotTakenBack, Refusal
from brim.engine.compiled.compile_report import CompileReport
from brim.engine.compiled.compiled_loss import CompiledLoss
from brim.engine.components.loss import CountedLoss, Loss, LossOf
from brim.engine.sandbox.python_state import PythonState
from brim.engine.sandbox.trial_call import trial_call
from brim.engine.step.eager_step import EagerStep
from brim.engine.step.nonfinite import are_finite
from brim.replaced import replaced

TIMED_SECONDS = 0.5  # at most, for each of the two
LEAST_TIMED, MOST_TIMED = 3, 20
Window = Sequence[Batch]


class CompileTrial:
    """One attempt; :meth:`run` fills a report, or raises, and leaves the training state as it was."""

    def __init__(
        self, eager: EagerStep, counted: CountedLoss, compiled: CompiledLoss, windows: Sequence[Window]
    ) -> None:
        assert counted.model is not None
        self.eager, self.counted, self.compiled, self.windows = eager, counted, compiled, windows
        self.model, self.loss_fn = counted.model, counted.loss_fn
        self.state = StepState(self.model, eager.optimizer, eager.precision, self.loss_fn)

    def run(self, report: CompileReport) -> None:
        """Compile, prove and time; raises where that fails."""
        start, precision = self.state.copy(), self.eager.precision
        quiet = (self.eager, "on_pass", None), (precision, "tells_if_stepped", False)
        with replaced(*quiet), trial_call(self.model, self.loss_fn, device=self.state.device) as rewind:
            try:
                likeness = self._prove(report)
                rewind()
                start.restore()
                self._time(report)
            finally:
                self._put_back(start)
        report.likeness = f"proven over {likeness.steps} steps: {likeness}"

    def _put_back(self, start: StateCopy) -> None:
        try:
            start.restore()
        except Exception as error:
            raise NotTakenBack("the training state could not be restored after a compiled step was tried") from error
        self.eager.precision.forget_unscaling()
        self.eager.clear_gradients()
        self.eager.numbers = []

    def _prove(self, report: CompileReport) -> Likeness:
        likeness = Likeness(self._rounding())
        for window in self.windows:
            here, python = self.state.copy(), PythonState(self.model, self.loss_fn)
            began = time.perf_counter()
            eager = self._outcome(self.counted.plain, window)
            eager_seconds = time.perf_counter() - began
            here.restore()
            python.restore()
            began = time.perf_counter()
            compiled = self._outcome(self.compiled, window)
            report.seconds += max(0.0, time.perf_counter() - began - eager_seconds)
            self._compare(here, eager, compiled, likeness)
            self.eager.apply(torch.tensor(compiled.loss, device=self.state.device))
            likeness.steps += are_finite(list(eager.gradients.values()))
        if not likeness.steps:
            raise Refusal("gradients of the steps that it was tried on are not finite, which proves nothing")
        return likeness

    def _rounding(self) -> Rounding:
        """How far rounding lets two results differ, by the operations of one forward pass."""
        batch, here = own_copy(self.windows[0])[0], self.state.copy()
        if self.eager.micro_batch is not None:
            batch = slice_batch(batch, 0, min(self.eager.micro_batch, batch_length(batch)))
        with self.eager.precision.autocast():
            loss = self.counted.plain(batch)
        here.restore()
        return rounding_of(self.model, self.eager.precision, loss.total if isinstance(loss, Loss) else loss)

    def _outcome(self, run: LossOf, window: Window) -> Outcome:
        loss = float(self._gradients(run, window))
        names = self.state.names
        gradients = {names[id(p)]: p.grad.clone() for p in self.eager.parameters if p.grad is not None}
        others = self.state.copies_of(self.state.others)
        return Outcome(loss, gradients, others, device_generator(self.state.device), {})

    def _gradients(self, run: LossOf, window: Window) -> Tensor:
        self.eager.precision.forget_unscaling()
        with replaced((self.counted, "run", run)):
            return self.eager.gradients(own_copy(window))

    def _compare(self, here: StateCopy, eager: Outcome, compiled: Outcome, likeness: Likeness) -> None:
        what, rounding = "a compiled step", likeness.rounding
        if not torch.equal(eager.generator, compiled.generator):
            raise Refusal(f"{what} draws other random numbers than an eager one")
        apart = compare_gradients(eager.gradients, compiled.gradients, rounding, what)
        sway = sway_of(self.state.named, eager.gradients)
        compare_losses(eager.loss, compiled.loss, sway, rounding, what)
        before = {name: here.copies[name] for name in eager.others}
        compare_buffers(before, eager.others, compiled.others, rounding, what)
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
        """Of a whole step, its update included."""
        self._wait()
        began = time.perf_counter()
        self.eager.apply(self._gradients(run, window))
        self._wait()
        return time.perf_counter() - began

    def _wait(self) -> None:
        if self.state.device.type == "cuda":
            torch.cuda.synchronize(self.state.device)
