"""Whether capturing earns its cost back: numbers of eager steps and of attempts in, a decision with its reason out."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# An attempt times eager steps and replays for so long each (captured/trial.py), looks at the host, captures and proves
# each of three batches: on an H200 this took as long as 80 steps of BERT-base and 97 of GPT-2. Then the last counts.
LEAST_SECONDS, STEPS_IN_ATTEMPT = 0.4, 80
# The share of the time in which the device computes, from which on nothing is tried: at best the step would be 1 / 0.7
# times as fast. A device that is behind at the end of each step usually is so all the time, and nothing is gained.
BUSY = 0.7
TRY, WAIT, NEVER = "try", "wait", "never"
NO_STEPS = "no steps are left to earn it back"


@dataclass(frozen=True)
class Pace:
    """Of eager steps: seconds from one to the next, and at least which share of them the device computes."""

    seconds: float
    busy: float = 0.0


@dataclass(frozen=True)
class Attempts:
    """What is known of capturing here: seconds that the last attempt took, and what a replay saves."""

    seconds: float | None = None
    saved: float | None = None  # of a step; None until one was measured


@dataclass(frozen=True)
class Decision:
    """``try`` it now, ``wait`` for more steps of this shape, or ``never``: nothing is captured in this run."""

    verdict: str
    reason: str = ""


NOTHING_TRIED = Attempts()


def cost_of(pace: Pace, attempts: Attempts) -> float:
    """Seconds of another attempt: as many as the last one took, or what one takes at least.

    >>> round(cost_of(Pace(0.01), Attempts()), 2)
    1.2
    """
    return attempts.seconds or LEAST_SECONDS + STEPS_IN_ATTEMPT * pace.seconds


def saved_by(pace: Pace, attempts: Attempts) -> float:
    """Seconds that a captured step saves: as measured, or all in which the device may be idle."""
    return pace.seconds * (1.0 - pace.busy) if attempts.saved is None else attempts.saved


def steps_expected(seen: int, of: int, left: int | None) -> float:
    """Steps of a shape that are to come, by its part of the steps so far; as many again where the end is not known.

    >>> steps_expected(seen=5, of=20, left=80), steps_expected(seen=5, of=20, left=None)
    (20.0, 5)
    """
    return seen if left is None else left * seen / max(1, of)


def decide(pace: Pace, left: int | None, expected: float, attempts: Attempts = NOTHING_TRIED) -> Decision:
    """Whether to capture a shape of which so many steps are ``expected`` among all that are ``left`` (None: unknown).

    Where the end of a run is unknown, the first shape is tried: somebody who trains usually trains for long.
    """
    if pace.busy >= BUSY and attempts.saved is None:
        return Decision(
            NEVER,
            f"the GPU is the limit, and capturing would gain nothing (it computes for {100 * pace.busy:.0f} % of the "
            f"{pace.seconds * 1e3:.1f} ms of a step or more)",
        )
    cost, saved = cost_of(pace, attempts), saved_by(pace, attempts)
    if left is not None and left * saved < cost:
        return Decision(NEVER, _too_few(left, "that are left", saved, cost))
    if left is None and attempts.saved is None:
        return Decision(TRY)
    if expected * saved < cost:
        return Decision(WAIT, _too_few(round(expected), "of this shape that are to be expected", saved, cost))
    return Decision(TRY)


def _too_few(steps: int, which: str, saved: float, cost: float) -> str:
    if steps <= 0:
        return NO_STEPS
    return (
        f"capturing takes some {cost:.1f} s, and the {steps:,} steps {which} would save {steps * saved:.2g} s at most"
    )


def least_used(kept: Mapping[Any, Any], seen: Mapping[Any, int]) -> Any:
    """The shape of the graph that makes way for another: the one that came least often.

    >>> least_used({"a": 1, "b": 2}, {"a": 7, "b": 3, "c": 1})
    'b'
    """
    return min(kept, key=lambda shape: seen.get(shape, 0))


def was_wasted(replays: int, attempts: Attempts) -> bool:
    """Whether graphs that were dropped have saved less than they cost."""
    if attempts.seconds is None or attempts.saved is None:
        return False
    return replays * attempts.saved < attempts.seconds
