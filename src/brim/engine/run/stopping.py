"""Whether a run ends before its time, and who asked for it: a signal, a callback, patience, or another rank."""

from dataclasses import dataclass, field
from pathlib import Path

from brim.engine.checkpoints.checkpoint import step_name
from brim.engine.distributed.ranks import Ranks
from brim.engine.run.interrupt import Interrupt
from brim.engine.step.step_result import StepResult
from brim.errors import Interrupted, Preempted

ANOTHER_RANK = "another rank was asked to stop"


@dataclass
class Stopping:
    """Requests to stop come at any time; what all ranks know of them they learn together, after the same step."""

    ranks: Ranks
    interrupt: Interrupt = field(default_factory=Interrupt)  # signals to this process
    reason: str | None = None  # of a callback, or for lack of better evaluations
    was_interrupted: bool = False  # by a signal, as all ranks know
    is_agreed: bool = False  # all ranks stop after this step
    is_live: bool = True  # until the last step is made, and the model has what comes of it

    @property
    def requests(self) -> tuple[bool, bool]:
        """What this rank tells the others with its gradients: a signal, a reason of its own."""
        return self.interrupt.requested, self.reason is not None

    def is_due(self) -> bool:
        """Whether no further step is made; alone nobody has to agree."""
        return self.is_agreed or (self.ranks.is_alone and (self.interrupt.requested or self.reason is not None))

    def read_requests(self, result: StepResult) -> None:
        """Take the requests of all ranks, which come with the gradients: all stop after the same step."""
        if result.signalled:
            self.was_interrupted = self.is_agreed = True
            self.interrupt.by = self.interrupt.by or "a signal to another rank"
        elif result.stop_requested:
            self.is_agreed = True
            self.reason = self.reason or ANOTHER_RANK

    def exchange_reasons(self) -> None:
        """After callbacks: a stop that one of them asks for on one rank is made on all, after this step."""
        if not self.ranks.is_alone and self.ranks.any_rank(self.reason is not None):
            self.is_agreed = True
            self.reason = self.reason or ANOTHER_RANK

    def decide(self, reason: str) -> None:
        """Stop, by what all ranks see alike."""
        self.reason = self.reason or reason
        self.is_agreed = True

    def exchange_interrupts(self) -> None:
        """At the end of the loop: learn whether a signal to another rank has interrupted the run."""
        self.is_agreed = self.is_due()
        self.was_interrupted = self.was_interrupted or self.ranks.any_rank(self.interrupt.requested)
        if self.was_interrupted:
            self.interrupt.by = self.interrupt.by or "a signal to another rank"

    def error(self, step: int, newest: Path | None) -> Interrupted | Preempted:
        """How a run ends that was asked to stop from outside, and the ``newest`` checkpoint to go on from."""
        where = f"checkpoint: {newest}" if newest is not None else "no checkpoint could be written"
        if newest is not None and newest.name != step_name(step):
            where = f"its checkpoint could not be written, the newest is {newest}"
        said = f"stopped by {self.interrupt.by} after step {step:,}; {where}"
        return Interrupted(said) if self.interrupt.by == "Ctrl-C" else Preempted(f"{said}; go on with resume")
