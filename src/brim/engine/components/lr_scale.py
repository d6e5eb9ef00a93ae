"""A learning rate for more ranks, for those who let the batch grow with them."""

import math
from collections.abc import Mapping
from dataclasses import replace

from torch.optim import Optimizer

from brim.engine.components.schedule import Schedule, SchedulerLike, as_schedule

WARM_UP = 0.05  # of the run, where the schedule has none
RULES = ("linear", "sqrt")


def lr_factor(rule: str | None, ranks: int) -> float:
    """What the learning rate is multiplied by: it was chosen for one rank.

    >>> lr_factor("linear", 4), lr_factor("sqrt", 4), lr_factor(None, 4)
    (4.0, 2.0, 1.0)
    """
    return {"linear": float(ranks), "sqrt": math.sqrt(ranks)}.get(rule or "", 1.0)


def scale_optimizer(optimizer: Optimizer, factor: float) -> None:
    """Multiply every group's learning rate, before a schedule takes it for its own."""
    for group in optimizer.param_groups:
        group["lr"] = group["lr"] * factor


def with_warm_up(scheduler: SchedulerLike | None) -> SchedulerLike:
    """The schedule with a warm-up, which a large rate needs; one of the user's own making is left as it is."""
    if scheduler is not None and not isinstance(scheduler, str | Schedule | Mapping):
        return scheduler
    schedule = as_schedule(scheduler or "constant")
    return schedule if schedule.warmup else replace(schedule, warmup=WARM_UP)
