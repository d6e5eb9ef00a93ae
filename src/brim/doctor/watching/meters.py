"""Running totals of where the time goes: each hook adds to its own, and the difference of two moments is a window."""

import itertools
from dataclasses import dataclass, fields, replace
from statistics import quantiles

from brim.doctor.observation import Window


@dataclass
class Meters:
    """Seconds and counts since the script began."""

    now: float = 0.0
    data: float = 0.0
    worker_starts: float = 0.0
    epochs: int = 0
    evaluation: float = 0.0
    garbage: float = 0.0
    collections: int = 0
    throttled: float = 0.0
    io_wait: float = 0.0
    in_line: float = 0.0
    major_faults: int = 0
    cpu: float = 0.0
    batches: int = 0
    samples: int = 0

    def copy(self) -> "Meters":
        return replace(self)


def window(marks: list[Meters]) -> Window | None:
    """The steps between the first and the last of some moments, each the end of a step; None for fewer than two.

    Where several epochs ended in it, it is cut to whole ones: what happens once an epoch (starting workers, evaluating)
    then has the part of the time that it has in the training.
    """
    marks = whole_epochs(marks)
    if len(marks) < 2:
        return None
    first, last = marks[0], marks[-1]
    lengths = [after.now - before.now for before, after in itertools.pairwise(marks)]
    names = {field.name for field in fields(Window)} & {field.name for field in fields(Meters)}
    return Window(
        steps=len(lengths),
        seconds=last.now - first.now,
        step_seconds=_percentiles(lengths),
        **{name: getattr(last, name) - getattr(first, name) for name in names},
    )


def whole_epochs(marks: list[Meters]) -> list[Meters]:
    """The moments from the first step of an epoch to the first step of the last one that began among them."""
    starts = [
        place
        for place, (before, after) in enumerate(itertools.pairwise(marks), start=1)
        if after.epochs > before.epochs
    ]
    return marks[starts[0] : starts[-1] + 1] if len(starts) > 2 else marks


def _percentiles(lengths: list[float]) -> tuple[float, float, float]:
    if len(lengths) < 2:
        return (lengths[0],) * 3 if lengths else (0.0, 0.0, 0.0)
    cuts = quantiles(lengths, n=20, method="inclusive")
    return (cuts[0], cuts[9], cuts[-1])
