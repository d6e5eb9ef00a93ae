"""What the first steps of a run find out, kept for the rest of it and for runs that continue it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from brim.engine.compiled import CompileReport
from brim.engine.run.placement import DataPlace
from brim.engine.run_log.run_notes import RunNotes
from brim.engine.run_state.progress import Progress

if TYPE_CHECKING:
    from brim.memory import Plan


@dataclass
class Findings:
    """Keeps micro-batch, threads and plan where they are needed, and has them reported."""

    progress: Progress
    place: DataPlace
    notes: RunNotes
    may_capture: bool  # which takes memory of its own
    plan: Plan | None = None
    resident: int = 0  # bytes of the training data on the device
    compiled: CompileReport | None = None  # of compile="auto"

    def choices(self) -> dict[str, Any]:
        """What was decided by measuring, with its reasons, for ``plan.json``."""
        return {} if self.compiled is None else {"compile": self.compiled.as_json()}

    def shortage(self, sentence: str, **facts: Any) -> None:
        """Memory ran out, or there is more of it again."""
        self.keep_micro_batch(facts.get("micro_batch", self.progress.micro_batch))
        self.notes.shortage(sentence, **facts)

    def keep_micro_batch(self, micro_batch: int | None) -> None:
        self.progress.micro_batch = micro_batch

    def planned(self, plan: Plan | None, trouble: str) -> None:
        """The forecast of the first batch is made, or failed; the training data takes what memory is left."""
        self.plan = plan
        if plan is None:
            self.notes.no_forecast(trouble)
            self.resident = self.place.keep_on_device()
            return
        pool = plan.forecast.captured if self.may_capture else 0
        self.resident = self.place.keep_on_device(max(0, plan.limit - plan.forecast.reserved - pool))
        self.notes.forecast(plan, pool, self.resident)

    def threads(self, choice: int, times: dict[int, float]) -> None:
        """The number of CPU threads was found."""
        self.progress.threads = choice
        self.notes.threads(choice, times)
