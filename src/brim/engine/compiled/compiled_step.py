"""The step of ``compile="auto"``: eager at first, then compiled where that is proven and faster."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from brim.data import Batch
from brim.engine.calling.compiler import Compiler
from brim.engine.captured.inputs import own_copy
from brim.engine.captured.report import NotTakenBack, Refusal
from brim.engine.compiled.compile_report import CompileReport, decided, why_not_tried
from brim.engine.compiled.compile_trial import CompileTrial
from brim.engine.compiled.compiled_loss import CompiledLoss
from brim.engine.components.loss import CountedLoss
from brim.engine.oom.out_of_memory import causes_of, is_out_of_memory, release_memory
from brim.engine.step.guard import GuardedStep
from brim.engine.step.splitting_check import Tell
from brim.engine.step.step_result import StepResult
from brim.engine.step.threads import StepLike, ThreadTrial
from brim.errors import said

WARM_UP = 4  # eager steps, of which the first is not timed
SAMPLES = 2  # of them, kept for the proof
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
    report: CompileReport = field(default_factory=CompileReport)

    def __post_init__(self) -> None:
        self.compiled = CompiledLoss(self.counted, self.compiler, in_training=True)
        self.guard.awaits_compiler = True  # a graph of eager code would have to be captured anew
        self._steps = 0
        self._began = self._trained = 0.0
        self._samples: list[list[Batch]] = []

    def __call__(self, window: Sequence[Batch]) -> StepResult:
        if self.guard.awaits_compiler:
            self._look(window)
        if self.counted.run is not self.compiled:
            return self.inner(window)
        try:
            return self.inner(window)
        except Exception as error:
            if not is_of_compiler(error):
                raise
            self._settle(f"compiling failed: {said(error)}")
        # Out here the exception is gone. No weight has moved: the optimizer steps after all that is compiled.
        self.guard.step.clear_gradients()
        self.guard.transaction.restore()
        return self.inner(window)

    def _look(self, window: Sequence[Batch]) -> None:
        """Count an eager step that is about to be made, or decide."""
        if isinstance(self.inner, ThreadTrial) and self.inner.schedule:
            return  # its steps take other times than those that follow
        if self._steps == 1:
            self._began = self._now()
        self._steps += 1
        if self._steps <= WARM_UP:
            return
        seconds = self._now() - self._began
        why_not = why_not_tried(seconds / (self._steps - 2), self.steps_left(), seconds)
        if why_not is not None:
            if self.steps_left() is not None:  # else later, perhaps
                self._settle(why_not)
        elif self.guard.search is None or self.guard.search.is_settled:
            self._samples = [*self._samples, own_copy(window)]
            if len(self._samples) > SAMPLES:
                self._try()

    def _now(self) -> float:
        device = self.guard.step.precision.device
        if device.type == "cuda" and self._steps in (1, WARM_UP):
            torch.cuda.synchronize(device)  # twice in a run
        return time.perf_counter()

    def _try(self) -> None:
        report, eager = self.report, self.guard.step
        report.steps_left = self.steps_left()
        failed = ""
        for batch in (batch for window in self._samples for batch in window):
            if eager.micro_batch is None:
                self.compiled.note(batch)
        try:
            CompileTrial(eager, self.counted, self.compiled, self._samples).run(report)
        except NotTakenBack:
            raise
        except Refusal as refusal:
            failed = str(refusal)
        except Exception as error:  # compilers and models fail in ways of their own; the eager step goes on
            is_short = is_out_of_memory(error)
            failed = "there is no memory for a trial" if is_short else f"compiling failed: {said(error)}"
        if failed:
            release_memory(eager.precision.device)
        self._settle(failed or decided(report).reason)

    def _settle(self, reason: str) -> None:
        """It is decided, and said."""
        report, self._samples = self.report, []
        self.guard.awaits_compiler = False
        report.reason = reason
        if self.counted.run is self.compiled:  # until now
            report.is_compiled = False
        self.counted.run = self.compiled if report.is_compiled else self.counted.plain
        if not report.is_compiled:
            self.tell(f"steps are not compiled: {reason}", **report.as_json())
            return
        kept = f"; kernels are kept in {kernel_folder()} for other runs" if self.compiler.backend == "inductor" else ""
        off = f"; {len(self.compiled.caching)} use_cache switched off meanwhile" if self.compiled.caching else ""
        self.tell(f"steps are compiled: {reason} ({report.likeness}){kept}{off}", **report.as_json())


def is_of_compiler(error: BaseException) -> bool:
    """Whether it was raised by what compiles, and not by what was compiled."""
    return any(type(one).__module__.startswith(COMPILERS) for one in causes_of(error))


def kernel_folder() -> str:
    """Where Inductor keeps what it has compiled; ``TORCHINDUCTOR_CACHE_DIR`` names another place."""
    from torch._inductor.runtime.cache_dir_utils import cache_dir  # a part of the compiler, which takes a second

    return str(cache_dir())
