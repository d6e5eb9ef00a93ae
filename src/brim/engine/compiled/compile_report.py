"""What came of ``compile="auto"``: whether compiling is worth a try, what it gained, and whether it pays."""

import math
from dataclasses import dataclass

from brim.record.words import show_seconds

LEAST_GAIN = 1.03
BEST_GAIN = 3.0  # times as fast, at best: what may be hoped for before anything is measured
LEAST_SECONDS = 5.0  # that compiling stands in the way of training, at least
UNKNOWN_LENGTH_SECONDS = 60.0  # eager, before a run of unknown length is taken for one that lasts as long again


@dataclass
class CompileReport:
    """Whether steps are compiled, and why or why not. Seconds are those of a step, forward and backward."""

    is_compiled: bool = False
    reason: str = ""
    eager_seconds: float | None = None
    compiled_seconds: float | None = None
    seconds: float = 0.0  # that compiling took, without the steps that were compared
    steps_left: int | None = None  # when it was decided
    likeness: str = ""

    @property
    def gain(self) -> float | None:
        """Times as fast."""
        if self.eager_seconds is None or not self.compiled_seconds:
            return None
        return self.eager_seconds / self.compiled_seconds

    def as_json(self) -> dict[str, object]:
        """Plain data, for ``plan.json``."""
        return {
            "used": self.is_compiled, "reason": self.reason, "gain": self.gain, "eager_seconds": self.eager_seconds,
            "compiled_seconds": self.compiled_seconds, "seconds": self.seconds, "steps_left": self.steps_left,
            "likeness": self.likeness,
        }  # fmt: skip


def why_not_tried(step_seconds: float, steps_left: int | None, trained_seconds: float) -> str | None:
    """Why compiling cannot pay, by what the eager steps took; None where it may. ``trained_seconds``: so far.

    >>> why_not_tried(0.01, 100, 1.0)
    '100 steps are left, which could save 0.67 s at best, and compiling takes 5.0 s at least'
    >>> why_not_tried(0.01, 100_000, 1.0)
    """
    if steps_left is None:
        is_early = trained_seconds < UNKNOWN_LENGTH_SECONDS
        return "nobody knows how many steps are left" if is_early else None
    saved = steps_left * step_seconds * (1 - 1 / BEST_GAIN)
    if saved >= LEAST_SECONDS:
        return None
    return (
        f"{steps_left:,} steps are left, which could save {show_seconds(saved)} at best, and compiling takes "
        f"{show_seconds(LEAST_SECONDS)} at least"
    )


def decided(report: CompileReport) -> tuple[str, bool]:
    """Of a trial that has proven and timed compiled code: why it is used from here on or not, and whether.

    What compiling took is spent by then, whatever is decided: compiled code is used where it is faster, and whether
    that pays for its cost is said.

    >>> decided(CompileReport(eager_seconds=0.2, compiled_seconds=0.1, seconds=8.0, steps_left=1000))[0]
    '2.00 times as fast (100.00 instead of 200.00 ms forward and backward); compiling took 8.0 s, which 80 of the 1,000 steps left pay for'
    """  # noqa: E501
    gain = report.gain
    assert gain is not None and report.eager_seconds is not None and report.compiled_seconds is not None
    measured = (
        f"{gain:.2f} times as fast ({report.compiled_seconds * 1e3:.2f} instead of {report.eager_seconds * 1e3:.2f} ms "
        "forward and backward)"
    )
    took = f"compiling took {show_seconds(report.seconds)}"
    if gain < LEAST_GAIN:
        return f"compiling was tried and gains nothing here: {measured}; {took}", False
    needed, left = math.ceil(report.seconds / (report.eager_seconds - report.compiled_seconds)), report.steps_left
    if left is None:
        paid = f"which {needed:,} steps pay for"
    elif needed <= left:
        paid = f"which {needed:,} of the {left:,} steps left pay for"
    else:
        paid = f"which the {left:,} steps left do not pay for, but it is spent"
    return f"{measured}; {took}, {paid}", True
