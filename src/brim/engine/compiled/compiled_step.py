"""The step of ``compile="auto"``: eager at first, then compiled where that is proven and faster."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from brim.data import Batch
from brim.engine.calling.compiler import INDUCTOR, Compiler
from brim.engine.captured.inputs import alike_copy
from brim.engine.captured.report import Refusal, StateNotRestored
from brim.engine.compiled.compile_report import CompileReport, decided, why_not_tried
from brim.engine.compiled.compile_trial import CompileTrial
from brim.engine.compiled.compiled_loss import CompiledLoss, NeedsCompiling
from brim.engine.compiled.compiler_loading import CompilerLoading
from brim.engine.components.loss import CountedLoss
from brim.engine.oom.out_of_memory import causes_of, is_out_of_memory, release_memory
from brim.engine.sandbox.python_state import CannotPutBack
from brim.engine.sandbox.trial_call import StepsOptimizer, WritesFiles
from brim.engine.step.guard import GuardedStep
from brim.engine.step.splitting_check import Tell
from brim.engine.step.step_result import StepResult
from brim.engine.step.threads import StepLike
from brim.errors import CannotFit, ModelError, said

UNDECIDED = "the run was over before it was decided"
NO_MEMORY = "there is no memory for a trial"
WARM_UP = 4  # eager steps, of which the first is not timed
SAMPLES = 3  # batches of the steps after them, kept for the proof
MOST_TRIALS = 3  # of a run: what is other code again and again is not worth its compiling
UNTRIABLE = (CannotPutBack, StepsOptimizer, WritesFiles)
COMPILERS = ("torch._dynamo", "torch._inductor", "torch._functorch", "triton")


@dataclass(eq=False)
class CompiledStep:
    """Makes steps by ``inner``, whose loss is compiled once that is decided. ``steps_left``: None where unknown."""

    inner: StepLike
    guard: GuardedStep
    counted: CountedLoss
    compiler: Compiler
    steps_left: Callable[[], int | None]
    tell: Tell
    report: CompileReport = field(default_factory=lambda: CompileReport(reason=UNDECIDED))

    def __post_init__(self) -> None:
        self.compiled = CompiledLoss(self.counted, self.compiler, proves=True)
        self.loading = CompilerLoading(self.guard.step.precision.device) if self.compiler.backend == INDUCTOR else None
        self.guard.awaits_compiler = True  # a graph of eager code would have to be captured anew
        self._steps = self._trials = 0
        self._began = 0.0
        self._step_seconds: float | None = None  # of an eager step
        self._micro_batch: int | None = None  # when it was proven
        self._samples: list[list[Batch]] = []

    def __call__(self, window: Sequence[Batch]) -> StepResult:
        if self._is_used and (why := self._why_unproven()) is not None:
            self._try_again(why)
        if self.guard.awaits_compiler:
            self._look(window)
        if not self._is_used:
            return self.inner(window)
        try:
            return self.inner(window)
        except NeedsCompiling as needed:
            why, is_over = str(needed), False
        except Exception as error:
            if not is_of_compiler(error):
                raise
            why, is_over = f"compiling failed: {said(error)}", True
        # Out here the exception is gone. No weight has moved: the optimizer steps after all that is compiled.
        self._take_back(why)
        self._settle(why, is_used=False) if is_over else self._try_again(why)
        return self.inner(window)

    @property
    def _is_used(self) -> bool:
        return self.counted.run is self.compiled

    def _why_unproven(self) -> str | None:
        """Why steps are no longer those that have been proven."""
        if self.guard.micro_batch != self._micro_batch:
            return f"micro-batches are of {self.guard.micro_batch or 'all'} samples"
        return None if self.compiled.is_proven else "batches are of many shapes"

    def _try_again(self, why: str) -> None:
        """Eager steps, until other code is proven; after some times for good."""
        if self._trials >= MOST_TRIALS:
            self._settle(f"they would be compiled for the {self._trials + 1}th time, because {why}", is_used=False)
            return
        if self.guard.micro_batch != self._micro_batch:
            self.compiled.forget_shapes()
        self.counted.run = self.counted.plain
        self.guard.awaits_compiler, self.report.is_compiled = True, False

    def _take_back(self, why: str) -> None:
        """Undo a forward pass that broke off."""
        self.guard.step.clear_gradients()
        try:
            self.guard.transaction.restore()
        except CannotFit:
            raise ModelError(
                f"a compiled step broke off ({why}), and weights or the batch had been changed in place by then, so it "
                "cannot be made again; go on from the last checkpoint with compile=False"
            ) from None

    def _look(self, window: Sequence[Batch]) -> None:
        """Count an eager step that is about to be made, or decide."""
        if getattr(self.inner, "is_trying", False):
            return  # its steps take other times than those that follow
        if self._steps == 1:
            self._began = self._now(waits=True)
        self._steps += 1
        if self._steps <= WARM_UP:
            return
        trained, left = self._now(waits=self._step_seconds is None) - self._began, self.steps_left()
        if self._step_seconds is None:
            self._step_seconds = trained / (self._steps - 2)
        why_not = why_not_tried(self._step_seconds, left, trained)
        if why_not is not None:
            if left is not None:  # else later, perhaps
                self._settle(why_not, is_used=False)
            return
        if self.loading is not None:
            self.loading.begin()
        is_loaded = self.loading is None or self.loading.is_over  # steps go on eagerly until it is
        if is_loaded and (self.guard.search is None or self.guard.search.is_settled):
            self._keep_sample(window)

    def _keep_sample(self, window: Sequence[Batch]) -> None:
        """One more batch for the proof, which begins with the last one; where there is no memory for it, it is over."""
        try:
            self._samples = [*self._samples, alike_copy(window)]
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            self._samples = []
        if not self._samples:
            self._settle(NO_MEMORY, is_used=False)
        elif len(self._samples) == SAMPLES:
            self._try()

    def _now(self, waits: bool) -> float:
        device = self.guard.step.precision.device
        if device.type == "cuda" and waits:
            torch.cuda.synchronize(device)
        return time.perf_counter()

    def _try(self) -> None:
        report, eager = self.report, self.guard.step
        report.steps_left, self._micro_batch = self.steps_left(), eager.micro_batch
        self._trials += 1
        failed = ""
        for batch in (batch for window in self._samples for batch in window):
            if eager.micro_batch is None:
                self.compiled.note(batch)
        try:
            CompileTrial(eager, self.counted, self.compiled, self._samples).run(report)
        except StateNotRestored:
            raise
        except (Refusal, *UNTRIABLE) as refusal:
            failed = str(refusal)
        except Exception as error:  # compilers and models fail in ways of their own; the eager step goes on
            failed = NO_MEMORY if is_out_of_memory(error) else f"compiling failed: {said(error)}"
        if failed:
            release_memory(eager.precision.device)
            self._settle(failed, is_used=False)
        else:
            self._settle(*decided(report))

    def _settle(self, reason: str, is_used: bool) -> None:
        """It is decided, and said."""
        report, self._samples = self.report, []
        self.guard.awaits_compiler = False
        report.reason, report.is_compiled = reason, is_used
        self.counted.run = self.compiled if is_used else self.counted.plain
        if not is_used:
            self.tell(f"steps are not compiled: {reason}", **report.as_json())
            return
        kept = f"; kernels are kept in {kernel_folder()} for other runs" if self.compiler.backend == INDUCTOR else ""
        off = f"; {len(self.compiled.caching)} use_cache switched off meanwhile" if self.compiled.caching else ""
        self.tell(f"steps are compiled: {reason} ({report.likeness}){kept}{off}", **report.as_json())


def is_of_compiler(error: BaseException) -> bool:
    """Whether it was raised by what compiles, and not by what was compiled."""
    return any(type(one).__module__.startswith(COMPILERS) for one in causes_of(error))


def kernel_folder() -> str:
    """Where Inductor keeps what it has compiled; ``TORCHINDUCTOR_CACHE_DIR`` names another place."""
    from torch._inductor.runtime.cache_dir_utils import cache_dir  # a part of the compiler, which takes a second

    return str(cache_dir())
