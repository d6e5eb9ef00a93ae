"""The outcome of capturing: a report, or a refusal."""

from dataclasses import dataclass


class Refusal(Exception):
    """Why a step cannot be captured, as the end of a sentence: "eager, because ..."."""


class Unproven(Refusal):
    """The steps that it was tried on prove nothing: others may."""


class StateNotRestored(Exception):
    """The training state could not be restored after a trial: the run must not go on from what is left of it."""


@dataclass
class CaptureReport:
    """Whether steps are replayed, why not, and how many were. ``gain`` is eager time over captured time, measured."""

    captured: bool = False
    reason: str = ""
    replays: int = 0
    eager: int = 0
    graphs: int = 0
    gain: float | None = None
    seconds: float = 0.0  # spent on capturing and proving

    def sentence(self) -> str:
        """One sentence on how many steps of a run were replayed, or why none was."""
        steps = self.replays + self.eager
        if self.captured or self.replays:
            return f"{self.replays:,} of {steps:,} steps were replayed from {self.graphs} captured graphs"
        return f"all {steps:,} steps were eager: {self.reason or 'there were too few to capture'}"
