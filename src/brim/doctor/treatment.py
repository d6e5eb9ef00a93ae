"""Cures applied and proved: before and after in turns, each in a process of its own, with the same seed."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from math import exp, log, sqrt
from pathlib import Path
from statistics import mean, stdev
from tempfile import TemporaryDirectory
from typing import Any

from brim.doctor.child_process import ScriptFailed, watch_script
from brim.doctor.diagnosis import Diagnosis, checked
from brim.doctor.observation import Observation
from brim.doctor.order import Cures, Order
from brim.doctor.time_limit import TimeLimit

ROUNDS = 3
LIMIT = 170.0  # seconds of the whole examination: people wait some three minutes
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
    limit: TimeLimit | None = None,
) -> list[Treatment]:
    """Try the cures of all findings that need no change of the script, the worst first; then the diffs of the script.

    What helped stays while the next is tried; what did not is undone, as soon as its rounds cannot prove it any more. A
    diff is measured for a finding that has no cure without one, or only torch.compile, with what helped so far, and is
    not kept. Where most of the step is computing, torch.compile is tried too.

    Args:
        script: As it was diagnosed.
        arguments: Its own.
        found: What is wrong with it.
        patience: Seconds without a step after which it hangs.
        say: Told what happens.
        allow_changes: Also try what changes the numbers: TF32, and autocast to bf16.
        limit: That the whole examination should keep to; a cure is tried only where its rounds end in time, but for
            the first.
    """
    with TemporaryDirectory(prefix="brim-doctor-compiled-", ignore_cleanup_errors=True) as compiled:
        order = Order(str(script), arguments, observes=False, pace=found.pace, compile_cache=compiled)
        return _all_tried(_trials(script, found, allow_changes), order, patience, say, limit or TimeLimit(LIMIT))


def _all_tried(
    trials: list[_Trial], order: Order, patience: float, say: Callable[[str], None], limit: TimeLimit
) -> list[Treatment]:
    kept = Cures()
    done: list[Treatment] = []
    for trial in trials:
        if not trial.source and kept.with_others(trial.cures) == kept:
            continue
        if kept.resident_data and trial.cures.are_of_copies:
            continue  # there are none any more
        if done and not limit.has_time_for(2 * ROUNDS):
            done.append(
                _failed(trial, f"not tried: {limit.seconds:g} s would not be enough; --limit SECONDS gives more")
            )
            continue
        treated = _tried(trial, replace(order, cures=kept), patience, say, limit)
        if treated.kept:
            kept = kept.with_others(trial.cures)
        done.append(treated)
    return done


def _trials(script: Path, found: Diagnosis, allow_changes: bool) -> list[_Trial]:
    """What can be tried, in this order."""
    cures = [
        _Trial(finding.cause, cures, may_change=finding.changes_training)
        for finding in found.findings
        for cures in (finding.cures, *finding.further)
        if not cures.are_none and (allow_changes or not finding.changes_training)
    ]
    # Compiling is no other way to do what a diff does: that is measured too.
    treated = {trial.cause for trial in cures if not trial.cures.compile}
    treated |= {finding.cause for finding in found.findings if finding.changes_training}
    diffs = [
        _Trial(suggestion.cause, source=suggestion.text, may_change=suggestion.changes_training)
        for suggestion in found.suggestions
        if suggestion.cause not in treated and Path(suggestion.path) == script.resolve()
    ]
    precision = [_Trial("precision", cures, may_change=True) for cures in _lower_precision(found)]
    may_compile = _computes(found) and not found.seen.host.compiled and not any(trial.cures.compile for trial in cures)
    compiled = [_Trial("compute-bound", Cures(compile=True))] if may_compile else []
    return [*cures, *diffs, *compiled, *(precision if allow_changes else [])]


def _computes(found: Diagnosis) -> bool:
    """Whether most of the step is computing: then other kernels, or other numbers, may be faster."""
    return found.shares.compute >= COMPUTES


def _lower_precision(found: Diagnosis) -> list[Cures]:
    host = found.seen.host
    if not _computes(found):
        return []
    tf32 = [Cures(tf32=True)] if host.device == "cuda" and not host.tf32 else []
    return [*tf32, *([] if host.autocast else [Cures(bf16=True)])]


def _tried(trial: _Trial, order: Order, patience: float, say: Callable[[str], None], limit: TimeLimit) -> Treatment:
    with_it = replace(order, cures=order.cures.with_others(trial.cures), source=trial.source)
    before: list[Observation] = []
    after: list[Observation] = []
    for turn in range(ROUNDS):
        say(f"{trial.name}: round {turn + 1} of {ROUNDS}")
        # The order changes, so that what gets slower in the course of time is nobody's advantage.
        for place in (before, after) if turn % 2 == 0 else (after, before):
            try:
                with limit.one_run():
                    place.append(_seen(order if place is before else with_it, patience))
            except ScriptFailed as error:
                if place is before:  # what was seen of it before this is still worth telling
                    return _failed(trial, f"the script failed without it too ({error}): not tried")
                return _failed(trial, f"the script did not train with it ({error}): undone")
        if not can_be_certain([log(_pace(one) / _pace(other)) for one, other in zip(before, after, strict=True)]):
            return _stopped(trial, before, after)
    gain = paired_gain([_pace(seen) for seen in before], [_pace(seen) for seen in after])
    losses = [seen.losses for seen in before], [seen.losses for seen in after]
    same, change = same_training(*losses), loss_change(*losses)
    kept = gain.is_certain and (trial.may_change or same is not False)
    said = _said_of_change(gain, change) if trial.may_change and same is not True else _said(gain, same, kept, change)
    # A diff is not applied for good, so it cannot be undone either.
    told = said.removesuffix(": undone") if trial.source else said
    return Treatment(trial.cause, trial.cures, gain, same, kept and not trial.source, told, change)


def _stopped(trial: _Trial, before: list[Observation], after: list[Observation]) -> Treatment:
    """A treatment of which some rounds have shown that all of them could not prove a gain."""
    ratios = " and ".join(f"{_pace(one) / _pace(other):.2f} x" for one, other in zip(before, after, strict=True))
    return _failed(trial, f"did not help for certain ({ratios}){'' if trial.source else ': undone'}")


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


def can_be_certain(logs: list[float]) -> bool:
    """Whether all rounds can still prove a gain, after the logarithms of the ratios of some.

    The lower end of the interval is above 1 where the mean is ``STUDENT`` times its error. After two rounds, m and d
    being their mean and half their difference, no third one makes it more than the root of 3 (m / d)**2 + 1 times. A
    single ratio of 1 or less leaves at most 2 times, which two others that are equal would give.

    >>> can_be_certain([0.3]), can_be_certain([-0.1]), can_be_certain([0.3, 0.2]), can_be_certain([0.3, 0.05])
    (True, False, True, False)
    """
    if len(logs) >= ROUNDS:
        return True
    if min(logs) <= 0:
        return False
    if len(logs) < 2:
        return True
    middle, half = mean(logs), abs(logs[0] - logs[1]) / 2
    return half == 0 or 3 * (middle / half) ** 2 + 1 > STUDENT[ROUNDS - 1] ** 2


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


def _said(gain: Gain, same: bool | None, kept: bool, change: float | None) -> str:
    if gain.is_certain and same is False:
        size = "" if change is None else f", by up to {100 * change:.2g} % in the first {COMPARED} steps"
        return f"faster, but with other losses{size} (other random numbers, or rounding that grows, say): undone"
    if not kept:
        return "did not help for certain: undone"
    return "same losses" if same else "helped; the script's losses differ from run to run, so they cannot be compared"
