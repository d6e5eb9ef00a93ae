"""What a learning-rate schedule counts, optimizer steps or epochs, and the rate that it will have at the end."""

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.optim import SGD, Optimizer
from torch.optim.lr_scheduler import (
    CosineAnnealingLR,
    CyclicLR,
    ExponentialLR,
    LambdaLR,
    LRScheduler,
    MultiStepLR,
    OneCycleLR,
    ReduceLROnPlateau,
    StepLR,
)

from brim.engine.components.schedule import SchedulerLike, is_named
from brim.engine.sandbox.trial_call import trial_call
from brim.errors import ConfigError

STEP, EPOCH, EVALUATION = "step", "epoch", "evaluation"
WRITTEN_IN_EPOCHS = (StepLR, MultiStepLR, ExponentialLR)
FUNCTIONS_OF_COUNT = (LambdaLR, OneCycleLR, CyclicLR)  # their rate depends on nothing else, so counts may be skipped
MOST_STEPS = 20_000  # of a copy, where the rate at the end takes all those before it: a second or less


def unit_of(
    wanted: SchedulerLike | None, made: LRScheduler | None, asked: str | None, epochs: int, max_steps: int | None
) -> str:
    """What the schedule of a run counts: what was asked for, or what people mean who write such a schedule.

    StepLR, MultiStepLR and ExponentialLR are written in epochs, and CosineAnnealingLR where its ``T_max`` is not longer
    than the run. All others count steps, and everything does where the run itself is counted in steps.
    """
    if isinstance(made, ReduceLROnPlateau):
        if asked is not None:
            raise ConfigError(
                f"scheduler_every={asked!r}: ReduceLROnPlateau follows evaluations; set eval_every= instead"
            )
        return EVALUATION
    if wanted is None or is_named(wanted):
        if asked == EPOCH:
            raise ConfigError(
                "scheduler_every='epoch' is for schedules of torch's; those by name count optimizer steps up to the "
                "end of the run: leave it out"
            )
        return STEP
    if asked is not None:
        return asked
    is_in_epochs = isinstance(made, WRITTEN_IN_EPOCHS) or (isinstance(made, CosineAnnealingLR) and made.T_max <= epochs)
    return EPOCH if is_in_epochs and max_steps is None else STEP


@dataclass(frozen=True)
class RateForecast:
    """The rate of now, and that of the last step or epoch of the run; ``trouble`` where that cannot be told."""

    now: float
    last: float | None
    trouble: str = ""


def forecast_rate(scheduler: LRScheduler, done: int, total: int | None) -> RateForecast:
    """On a copy: the schedule and its optimizer stay as they are. ``done``: the counts of ``total`` that are over.

    >>> optimizer = SGD([nn.Parameter(torch.ones(1))], lr=1.0)
    >>> forecast_rate(ExponentialLR(optimizer, 0.5), 0, 4)
    RateForecast(now=1.0, last=0.125, trouble='')
    """
    optimizer = scheduler.optimizer
    now = float(optimizer.param_groups[0]["lr"])
    if total is None:
        return RateForecast(now, None, "how long an epoch is is not known")
    left = total - 1 - done
    if left <= 0:
        return RateForecast(now, now)
    skips = isinstance(scheduler, FUNCTIONS_OF_COUNT) or hasattr(scheduler, "_get_closed_form_lr")
    if not skips and left > MOST_STEPS:
        return RateForecast(now, None, f"it takes all {left:,} steps before it")
    try:
        copied: Any = copy.deepcopy(scheduler, {id(optimizer): _stand_in(optimizer)})
        with trial_call(copied):
            return RateForecast(now, _rate_after(copied, left, skips))
    except Exception as error:  # a function of the user's
        return RateForecast(now, None, f"{type(error).__name__}: {str(error)[:100]}")


def _rate_after(copied: Any, left: int, skips: bool) -> float:
    if skips and hasattr(copied, "_get_closed_form_lr"):
        copied.last_epoch += left
        return float(copied._get_closed_form_lr()[0])
    if skips:
        copied.last_epoch += left - 1
        left = 1
    for _ in range(left):
        copied.step()
    return float(copied.optimizer.param_groups[0]["lr"])


def _stand_in(optimizer: Optimizer) -> Optimizer:
    """An optimizer with the same groups and settings, of no size: what a schedule reads and writes."""
    groups = [{"params": [nn.Parameter(torch.zeros(1))]} for _ in optimizer.param_groups]
    made = SGD(groups, lr=1.0)
    for group, theirs in zip(made.param_groups, optimizer.param_groups, strict=True):
        group.update(
            {key: copy.deepcopy(value) for key, value in theirs.items() if key not in ("params", "param_names")}
        )
    made.defaults = dict(optimizer.defaults)
    return made


def describe_unit(kind: str, unit: str, is_asked: bool, rate: RateForecast, total: int | None) -> str:
    """The line that a run begins with.

    >>> describe_unit("StepLR", "epoch", False, RateForecast(0.1, 0.01), 20)
    "the schedule StepLR counts epochs (scheduler_every='step' for steps): lr 0.1 now, 0.01 in the last epoch, the 20th"
    """
    other = STEP if unit == EPOCH else EPOCH
    hint = "" if is_asked else f" (scheduler_every={other!r} for {other}s)"
    if rate.last is None or total is None:
        return f"the schedule {kind} counts {unit}s{hint}: lr {rate.now:g} now; at the end is not told: {rate.trouble}"
    return (
        f"the schedule {kind} counts {unit}s{hint}: lr {rate.now:g} now, {rate.last:g} in the last {unit}, "
        f"the {_ordinal(total)}"
    )


def _ordinal(number: int) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th") if number % 100 not in (11, 12, 13) else "th"
    return f"{number:,}{ending}"
