"""What a run says of memory, threads and captured steps."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from brim.engine.captured import CaptureReport
from brim.engine.oom.memory_parts import RESIDENT, STEPS
from brim.engine.oom.memory_watch import MemoryWatch
from brim.engine.splitting.loss_verdict import LABEL_MEAN, LossVerdict
from brim.record import Journal
from brim.sizes import show_bytes

if TYPE_CHECKING:
    from brim.memory import Plan


class RunNotes:
    """Turns what the parts of a step find out into lines of the journal."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal

    def shortage(self, sentence: str, **facts: Any) -> None:
        """Memory ran out, or there is more of it again, and what is done about it."""
        self.journal.warn(sentence, "memory", **facts)

    def loss_verdict(self, verdict: LossVerdict) -> None:
        """What the loss is a mean over, where that is not simply samples."""
        if verdict.kind == LABEL_MEAN:
            self.journal.say(
                f"the loss is a mean over {verdict.rule}: parts of a batch are weighted by how many each has", "loss"
            )

    def no_forecast(self, trouble: str) -> None:
        self.journal.warn(trouble, "memory")

    def search(self) -> None:
        self.journal.say(
            "the batch does not fit as it is: looking for the fastest way that does, which takes some ten forecasts",
            "memory",
        )

    def forecast(self, plan: Plan, pool: int, resident: int = 0) -> None:
        """What the forecast says, before the first batch is computed.

        ``pool``: bytes that captured steps may keep. ``resident``: bytes of the data that was put on the card.
        """
        made = plan.forecast
        parts = _listed({**made.parts, RESIDENT: resident})
        told = f"; captured, a step keeps up to {show_bytes(pool)} of its own" if pool else ""
        self.journal.say(
            f"memory forecast: {show_bytes(made.reserved + resident)} of {show_bytes(plan.limit)} that can be used "
            f"({parts}){told}",
            "memory",
            forecast=made.as_json(),
            resident=resident,
            plan={name: value for name, value in plan.as_json().items() if name != "forecast"},
        )
        if plan.slices > 1 or plan.cost:
            self.journal.say(plan.reasons[0], "memory", micro_batch=plan.micro_batch)

    def threads(self, choice: int, times: dict[int, float]) -> None:
        """The number of CPU threads was found."""
        measured = ", ".join(f"{threads}: {seconds * 1e3:.2f} ms" for threads, seconds in times.items())
        of = "thread" if choice == 1 else "threads"
        self.journal.say(f"computing with {choice} CPU {of} (a step with {measured})", "threads", threads=choice)

    def capture(self, sentence: str, **facts: Any) -> None:
        """Steps are captured, or it is known why not."""
        self.journal.say(sentence, "capture", **facts)

    def compile(self, sentence: str, **facts: Any) -> None:
        """Steps are compiled, or it is known why not."""
        self.journal.say(sentence, "compile", **facts)

    def replays(self, report: CaptureReport) -> None:
        """How many of the steps were replayed."""
        self.journal.note(report.sentence(), "replays", **asdict(report))

    def peak(self, watch: MemoryWatch, plan: Plan | None, resident: int = 0) -> None:
        """What the run really took, by parts, beside the forecast.

        The forecast is of the steps. What else the run found out to need, or put on the card, is added to it: so both
        figures are of the same things.
        """
        if not watch.is_gpu:
            return
        watch.note_peak()
        allocated, reserved = watch.most_allocated, watch.most_reserved
        parts = watch.parts.beside(resident)
        others = sum(size for name, size in parts.items() if name != STEPS)
        expected = None if plan is None else plan.forecast.reserved + others
        listed = f" ({_listed(parts)})" if others >= 1 << 20 else ""
        told = "" if expected is None else f", forecast {show_bytes(expected)}"
        if plan is not None and listed:
            told += f", of which {show_bytes(plan.forecast.reserved)} for the steps"
        self.journal.say(
            f"peak memory: {show_bytes(allocated)} allocated, {show_bytes(reserved)} reserved{listed}{told}",
            "memory",
            allocated=allocated,
            reserved=reserved,
            reserved_parts=parts,
            **({} if expected is None else {"expected": expected}),
        )


def _listed(parts: dict[str, int]) -> str:
    return ", ".join(f"{name} {show_bytes(size)}" for name, size in parts.items() if size >= 1 << 20)
