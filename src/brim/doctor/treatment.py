"""Cures applied and proved: before and after in turns, each in a process of its own, with the same seed."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from math import exp, log, sqrt
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from brim.doctor.child_process import watch_script
from brim.doctor.diagnosis import Diagnosis, checked
from brim.doctor.observation import Observation
from brim.doctor.order import Cures, Order

ROUNDS = 3
BUDGET = 150.0  # seconds after which no further cure is tried
LEAST_GAIN = 1.02
# Student's t for an interval of 95 %, by the number of pairs less one.
STUDENT = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57}
COMPARED = 20  # losses: later ones carry every rounding on
ROUNDING = 1e-4  # relative: another order of additions, not other samples
NO_COMPARISON = 0.1


@dataclass(frozen=True)
class Gain:
    """How many times as fast, with the interval in which it lies with 95 %."""

    ratio: float
    low: float
    high: float

    @property
    def is_certain(self) -> bool:
        return self.low > 1.0 and self.ratio >= LEAST_GAIN


@dataclass(frozen=True)
class Treatment:
    """One cure that was tried, on top of those that had helped."""

    cause: str
    cures: Cures
    gain: Gain | None
    same_training: bool | None  # None: the script does not repeat itself, so nothing can be compared
    kept: bool
    said: str

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def treat(
    script: Path,
    arguments: tuple[str, ...],
    found: Diagnosis,
    patience: float,
    say: Callable[[str], None],
) -> list[Treatment]:
    """Try the cures of all findings that need no change of the script, the worst first.

    What helped stays while the next is tried; what did not is undone.
    """
    started = time.monotonic()
    kept = Cures()
    done: list[Treatment] = []
    for finding in found.findings:
        if finding.cures.are_none or finding.changes_training or kept.with_others(finding.cures) == kept:
            continue
        if time.monotonic() - started > BUDGET:
            done.append(Treatment(finding.cause, finding.cures, None, None, False, "not tried: time was up"))
            continue
        order = Order(str(script), arguments, observes=False, cures=kept, pace=found.pace)
        treated = _tried(finding.cause, finding.cures, order, patience, say)
        if treated.kept:
            kept = kept.with_others(finding.cures)
        done.append(treated)
    return done


def _tried(cause: str, cures: Cures, order: Order, patience: float, say: Callable[[str], None]) -> Treatment:
    with_it = replace(order, cures=order.cures.with_others(cures))
    before: list[Observation] = []
    after: list[Observation] = []
    for turn in range(ROUNDS):
        say(f"{cures.in_words}: round {turn + 1} of {ROUNDS}")
        # The order changes, so that what gets slower in the course of time is nobody's advantage.
        for place in (before, after) if turn % 2 == 0 else (after, before):
            place.append(_seen(order if place is before else with_it, patience))
    if any(seen.timed is None or not seen.timed.steps for seen in after):
        return Treatment(cause, cures, None, None, False, "the script did not train with it: undone")
    gain = paired_gain([_pace(seen) for seen in before], [_pace(seen) for seen in after])
    same = same_training([seen.losses for seen in before], [seen.losses for seen in after])
    kept = gain.is_certain and same is not False
    return Treatment(cause, cures, gain, same, kept, _said(gain, same, kept))


def _seen(order: Order, patience: float) -> Observation:
    ended = watch_script(order, patience, lambda _: None)
    return checked(ended)


def _pace(seen: Observation) -> float:
    """Seconds a sample, or a step where samples are not known."""
    assert seen.timed is not None
    return seen.timed.seconds / (seen.timed.samples or seen.timed.steps)


def paired_gain(before: list[float], after: list[float]) -> Gain:
    """The ratio of two speeds by pairs of measurements, with its interval.

    >>> paired_gain([2.0, 2.0, 2.0], [1.0, 1.0, 1.0])
    Gain(ratio=2.0, low=2.0, high=2.0)
    """
    logs = [log(one / other) for one, other in zip(before, after, strict=True)]
    middle = mean(logs)
    half = STUDENT[len(logs) - 1] * stdev(logs) / sqrt(len(logs)) if len(logs) > 1 else float("inf")
    return Gain(exp(middle), exp(middle - half), exp(middle + half))


def same_training(before: list[tuple[float, ...]], after: list[tuple[float, ...]]) -> bool | None:
    """Whether the first losses are the same but for rounding, as far as the script repeats itself.

    >>> twice = [(1.0, 0.5), (1.0, 0.5)]
    >>> same_training(twice, [(1.0, 0.5000001)]), same_training(twice, [(1.0, 0.4)])
    (True, False)
    """
    noise = max((_difference(before[0], other) for other in before[1:]), default=0.0)
    if noise > NO_COMPARISON or not before[0]:
        return None
    return all(_difference(before[0], losses) <= max(2 * noise, ROUNDING) for losses in after)


def _difference(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    """The largest relative difference of the losses that both have; a NaN is one only where the other has none."""
    pairs = list(zip(one, other, strict=False))[:COMPARED]
    if not pairs:
        return float("inf")
    apart = [
        0.0 if a == b or (a != a and b != b) else abs(a - b) / max(abs(a), abs(b), 1e-12) for a, b in pairs
    ]  # fmt: skip
    return max(float("inf") if difference != difference else difference for difference in apart)


def _said(gain: Gain, same: bool | None, kept: bool) -> str:
    if gain.is_certain and same is False:
        return "faster, but with other losses (random numbers drawn in workers are others, say): undone"
    if not kept:
        return "did not help for certain: undone"
    return "same losses" if same else "helped; the script's losses differ from run to run, so they cannot be compared"
