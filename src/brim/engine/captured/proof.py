"""Whether two ways of making the same steps end in the same place."""

from dataclasses import dataclass

import torch
from torch import Tensor

from brim.engine.captured.report import Refusal
from brim.engine.captured.state import StateCopy

SPREAD = 10  # times as far apart as eager is from eager: kernels with atomics never give the same twice
SHARE = 1e-3  # of the way that the steps went: rounding is less, a number that stood still is more
LOSS_SHARE = 1e-4


@dataclass(frozen=True)
class Outcome:
    """Where some steps ended."""

    state: StateCopy
    losses: list[float]


def compare(start: StateCopy, eager: Outcome, again: Outcome, captured: Outcome) -> str:
    """How alike eager and captured are: "to the bit", or "within ..."; refuses where they are not."""
    names = list(start.state.named)
    exact, furthest = True, 0.0
    for number, name in enumerate(names):
        before, one, two, other = (copy.copies[number] for copy in (start, eager.state, again.state, captured.state))
        if torch.equal(one, other) or _both_bad(one, other):
            continue
        if not one.is_floating_point():
            raise Refusal(f"a captured step gave another result than an eager one ({name})")
        way, spread, apart = _norm(one, before), _norm(two, one), _norm(other, one)
        if not apart <= max(SPREAD * spread, SHARE * way):
            raise Refusal(
                f"a captured step gave another result than an eager one ({name}: {apart:.1e} apart after a way of "
                f"{way:.1e}; eager differs from itself by {spread:.1e})"
            )
        exact, furthest = False, max(furthest, apart / way if way else 0.0)
    _compare_losses(eager.losses, again.losses, captured.losses)
    return "to the bit" if exact else f"within {furthest:.0e} of the way"


def _compare_losses(eager: list[float], again: list[float], captured: list[float]) -> None:
    for one, two, other in zip(eager, again, captured, strict=True):
        if one == other or (one != one and other != other):
            continue
        if not abs(other - one) <= max(SPREAD * abs(two - one), LOSS_SHARE * abs(one)):
            raise Refusal(f"a captured step gave another loss than an eager one ({other} instead of {one})")


def _both_bad(one: Tensor, other: Tensor) -> bool:
    return one.is_floating_point() and bool(((one == other) | (one.isnan() & other.isnan())).all())


def _norm(one: Tensor, other: Tensor) -> float:
    return float((one.double() - other.double()).norm())
