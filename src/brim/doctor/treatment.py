"""Cures applied and proved: before and after in turns, each in a process of its own, with the same seed."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from math import exp, log, sqrt
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from brim.doctor.child_process import ScriptFailed, watch_script
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
COMPUTES = 0.5  # of the step: below, faster numbers bring little


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
    """One cure that was tried, on top of those that had helped.

    Attributes:
        cause: What it is for.
        cures: What was changed in the process; none where a diff of the script was tried.
        gain: How many times as fast the script was.
        same_training: Whether its losses were the same; None where it does not repeat itself.
        kept: Whether it stays while others are tried.
        said: What came of it.
        loss_change: The largest relative difference of its first losses; None where nothing can be compared.
    """

    cause: str
    cures: Cures
    gain: Gain | None
    same_training: bool | None
    kept: bool
    said: str
    loss_change: float | None = None

    @property
    def name(self) -> str:
        """What was tried, in words."""
        return self.cures.in_words or f"the diff for {self.cause}"

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class _Trial:
    """What is to be compared with the script as it is: cures in the process, or another text of the script."""

    cause: str
    cures: Cures = field(default_factory=Cures)
    source: str = ""
    may_change: bool = False  # the numbers

    @property
    def name(self) -> str:
        return self.cures.in_words or f"the diff for {self.cause}"


def treat(
    script: Path,
    arguments: tuple[str, ...],
    found: Diagnosis,
    patience: float,
    say: Callable[[str], None],
    allow_changes: bool = False,
) -> list[Treatment]:
    """Try the cures of all findings that need no change of the script, the worst first; then the diffs of the script.

    What helped stays while the next is tried; what did not is undone. A diff is measured for a finding that has no
    cure without one, with what helped so far, and is not kept.

    Args:
        script: As it was diagnosed.
        arguments: Its own.
        found: What is wrong with it.
        patience: Seconds without a step after which it hangs.
        say: Told what happens.
        allow_changes: Also try what changes the numbers: TF32, and autocast to bf16.
    """
    started = time.monotonic()
    kept = Cures()
    done: list[Treatment] = []
    for trial in _trials(script, found, allow_changes):
        if not trial.source and kept.with_others(trial.cures) == kept:
            continue
        if time.monotonic() - started > BUDGET:
            done.append(Treatment(trial.cause, trial.cures, None, None, False, "not tried: time was up"))
            continue
        order = Order(str(script), arguments, observes=False, cures=kept, pace=found.pace)
        treated = _tried(trial, order, patience, say)
        if treated.kept:
            kept = kept.with_others(trial.cures)
        done.append(treated)
    return done


def _trials(script: Path, found: Diagnosis, allow_changes: bool) -> list[_Trial]:
    """What can be tried, in this order."""
    cures = [
        _Trial(finding.cause, finding.cures, may_change=finding.changes_training)
        for finding in found.findings
        if not finding.cures.are_none and (allow_changes or not finding.changes_training)
    ]
    treated = {trial.cause for trial in cures} | {f.cause for f in found.findings if f.changes_training}
    diffs = [
        _Trial(suggestion.cause, source=suggestion.text, may_change=suggestion.changes_training)
        for suggestion in found.suggestions
        if suggestion.cause not in treated and Path(suggestion.path) == script.resolve()
    ]
    precision = [_Trial("precision", cures, may_change=True) for cures in _lower_precision(found)]
    return [*cures, *diffs, *(precision if allow_changes else [])]


def _lower_precision(found: Diagnosis) -> list[Cures]:
    """Where most of the step is computing, other numbers may be faster ones."""
    host = found.seen.host
    if found.shares.compute < COMPUTES:
        return []
    tf32 = [Cures(tf32=True)] if host.device == "cuda" and not host.tf32 else []
    return [*tf32, *([] if host.autocast else [Cures(bf16=True)])]


def _tried(trial: _Trial, order: Order, patience: float, say: Callable[[str], None]) -> Treatment:
    with_it = replace(order, cures=order.cures.with_others(trial.cures), source=trial.source)
    before: list[Observation] = []
    after: list[Observation] = []
    for turn in range(ROUNDS):
        say(f"{trial.name}: round {turn + 1} of {ROUNDS}")
        # The order changes, so that what gets slower in the course of time is nobody's advantage.
        for place in (before, after) if turn % 2 == 0 else (after, before):
            try:
                place.append(_seen(order if place is before else with_it, patience))
            except ScriptFailed as error:
                if place is before:
                    raise
                return _failed(trial, f"the script did not train with it ({error}): undone")
    gain = paired_gain([_pace(seen) for seen in before], [_pace(seen) for seen in after])
    losses = [seen.losses for seen in before], [seen.losses for seen in after]
    same, change = same_training(*losses), loss_change(*losses)
    kept = gain.is_certain and (trial.may_change or same is not False)
    said = _said_of_change(gain, change) if trial.may_change and same is not True else _said(gain, same, kept)
    # A diff is not applied for good, so it cannot be undone either.
    told = said.removesuffix(": undone") if trial.source else said
    return Treatment(trial.cause, trial.cures, gain, same, kept and not trial.source, told, change)


def _failed(trial: _Trial, said: str) -> Treatment:
    return Treatment(trial.cause, trial.cures, None, None, False, said)


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


def loss_change(before: list[tuple[float, ...]], after: list[tuple[float, ...]]) -> float | None:
    """The largest relative difference of the first losses that a treatment made; None where there are none.

    >>> loss_change([(1.0, 0.5)], [(1.0, 0.49)])
    0.02
    """
    changes = [_difference(before[0], losses) for losses in after] if before and before[0] else []
    largest = max(changes, default=float("inf"))
    return None if largest == float("inf") else round(largest, 6)


def _difference(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    """The largest relative difference of the losses that both have; a NaN is one only where the other has none."""
    pairs = list(zip(one, other, strict=False))[:COMPARED]
    if not pairs:
        return float("inf")
    apart = [
        0.0 if a == b or (a != a and b != b) else abs(a - b) / max(abs(a), abs(b), 1e-12) for a, b in pairs
    ]  # fmt: skip
    return max(float("inf") if difference != difference else difference for difference in apart)


def _said_of_change(gain: Gain, change: float | None) -> str:
    """What came of a treatment that may change the numbers."""
    size = "" if change is None else f" by up to {100 * change:.2g} % in the first {COMPARED} steps"
    if not gain.is_certain:
        return f"did not help for certain{f', and changes the losses{size}' if size else ''}: undone"
    return f"helped, and changes the losses{size}" if size else "helped; the losses cannot be compared"


def _said(gain: Gain, same: bool | None, kept: bool) -> str:
    if gain.is_certain and same is False:
        return "faster, but with other losses (random numbers drawn in workers are others, say): undone"
    if not kept:
        return "did not help for certain: undone"
    return "same losses" if same else "helped; the script's losses differ from run to run, so they cannot be compared"
