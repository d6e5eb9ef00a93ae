"""One cause of lost time, with its evidence and its cure."""

from dataclasses import asdict, dataclass, field
from typing import Any

from brim.doctor.observation import LineTime, TensorCalls
from brim.doctor.order import Cures

WORTH_TELLING = 0.05  # of a step's time


@dataclass(frozen=True)
class Finding:
    """A cause of lost time.

    Attributes:
        cause: Its name, the same in every version.
        what: What is wrong, in a sentence.
        evidence: The numbers that say so.
        cure: What to do.
        share: The part of a step's time that is lost to it.
        gain: How many times as fast the cure would make the training, as predicted; None where only a trial can tell.
        line: The user's line that it comes from.
        cures: What ``--apply`` does about it; none where it takes a change of the user's code.
        further: What it tries after that.
        changes_training: Whether the cure changes what is computed, if only by its precision.
    """

    cause: str
    what: str
    evidence: str
    cure: str
    share: float
    gain: float | None = None
    line: str = ""
    cures: Cures = field(default_factory=Cures)
    further: tuple[Cures, ...] = ()
    changes_training: bool = False

    def as_json(self) -> dict[str, Any]:
        found = asdict(self)
        found["cures"] = self.cures.as_json()
        found["further"] = [cures.as_json() for cures in self.further]
        return found


def those_found(*causes: Finding | None) -> list[Finding]:
    """Those of some causes that were found."""
    return [found for found in causes if found is not None]


def named(line: LineTime | TensorCalls) -> str:
    """A line of the user's with its source."""
    return f"{line.line} ({line.text[:60]})"


def gain_of(share: float) -> float:
    """How many times as fast a training is without a part of its time.

    >>> gain_of(0.5)
    2.0
    """
    return 1.0 / max(0.01, 1.0 - share)


def milliseconds(seconds: float) -> str:
    """
    >>> milliseconds(0.0123), milliseconds(0.00042)
    ('12.3 ms', '0.42 ms')
    """
    return f"{1e3 * seconds:,.1f} ms" if seconds >= 1e-2 else f"{1e3 * seconds:.2f} ms"


def percent(share: float) -> str:
    """
    >>> percent(0.126)
    '13 %'
    """
    return f"{100 * share:.0f} %"
