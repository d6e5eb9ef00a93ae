"""What makes a step a transaction: everything that a failed try moves can be put back, its batches among it."""

from collections.abc import Callable, Sequence

from torch import Tensor, nn

from brim.data import Batch
from brim.engine.components.loss import CountedLoss, counted_in
from brim.engine.components.optimizer_state import allocate_state
from brim.engine.distributed.ranks import Ranks
from brim.engine.oom.kept_window import KeptWindow
from brim.engine.oom.out_of_memory import STATE, is_out_of_memory, release_memory, shortage_of
from brim.engine.oom.snapshot import Snapshot
from brim.engine.splitting.splitting import Splitting
from brim.engine.step.eager_step import EagerStep
from brim.engine.step.splitting_check import JudgeFirst, SplittingCheck, Tell
from brim.engine.step.step_result import StepResult
from brim.errors import CannotFit


class OptimizerRanOut(CannotFit):
    """The optimizer's step ran out of memory: its weights cannot be trusted, and no checkpoint is made of them."""


class Transaction:
    """One step after the other: ``begin``, tries that ``restore`` undoes, and ``apply``, which is not tried again.

    Before a batch is first computed in parts, it is asked whether that is the same training.
    """

    def __init__(
        self,
        step: EagerStep,
        model: nn.Module | None,
        ranks: Ranks | None,
        tell: Tell,
        sliceable: bool | None,
        judge_first: JudgeFirst | None = None,
    ) -> None:
        self.step = step
        self.model = model
        loss = counted_in(step.compute)
        if loss is None:
            step.compute = loss = CountedLoss(model, None, step.compute)
        is_two_pass = loss.two_pass is not None
        self.splitting = Splitting(loss, model, step.precision, sliceable, is_of_encode=is_two_pass)
        self.check = SplittingCheck(self.splitting, step, ranks, tell, judge_first)
        self.snapshot = Snapshot(model, step.precision, loss.loss_fn)
        self.kept = KeptWindow()
        self.made = 0  # steps
        self._groups_with_state = 0

    def begin(self, window: Sequence[Batch]) -> None:
        """Remember this moment, and the batches as they are now."""
        self.take_snapshot()
        self.check.ask(window, self.made)
        try:
            self.kept.keep(window)
            return
        except Exception as error:
            if not is_out_of_memory(error):
                raise
        release_memory(self.step.precision.device)
        self.kept.keep(window, copies=False)

    def take_snapshot(self) -> None:
        try:
            self.snapshot.take()
            return
        except Exception as error:
            if not is_out_of_memory(error):
                raise
        release_memory(self.step.precision.device)
        self.snapshot.forget_buffers()  # those of the next step are small: copies are made anew

    def reserve_state(self) -> None:
        """Make the optimizer's state where it has none: running out of memory can still be dealt with."""
        if len(self.step.optimizer.param_groups) != self._groups_with_state:
            self.step.phase = STATE
            allocate_state(self.step.optimizer)
            self._groups_with_state = len(self.step.optimizer.param_groups)

    def restore(self) -> None:
        """Everything as it was before the failed try; or an error, where something cannot be put back."""
        lost = self.snapshot.beyond_repair()
        self.check.tell_of_registered(self.snapshot.registered_since())
        self.snapshot.restore()
        if not self.kept.restore():
            lost.append("the batch")
        if lost:
            raise CannotFit(
                f"memory ran out, and {', '.join(lost[:3])} had been changed in place by then, so the step cannot be "
                "made again; use a smaller batch_size, or change a copy (x = x - mean instead of x.sub_(mean))"
            )

    def apply(self, apply: Callable[[Tensor], StepResult], loss: Tensor) -> StepResult:
        """Let the optimizer step, and the step be over."""
        try:
            result = apply(loss)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            sentence = shortage_of(error, "optimizer's step", self.model, self.step.optimizer).sentence()
        else:
            self.made += 1
            self.kept.forget()
            return result
        raise OptimizerRanOut(
            f"{sentence}; its weights may be half stepped, so go on from the last checkpoint with a leaner optimizer "
            "(fused=True, or one by name)"
        )
