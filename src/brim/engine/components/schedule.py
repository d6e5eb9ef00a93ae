"""Learning-rate schedules, counted in optimizer steps, and the rate for more ranks."""

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeGuard

from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler, ReduceLROnPlateau

from brim.arguments.known import known_fields
from brim.engine.mistakes.one_argument import call_with, check_takes_one
from brim.errors import ConfigError, a_type

WARM_UP = 0.05  # of the run, where the schedule has none
SCALE_RULES = ("linear", "sqrt")


@known_fields
@dataclass(frozen=True)
class Schedule:
    """A learning-rate schedule by name, counted in optimizer steps.

    Args:
        name: after the warm-up the rate stays (``"constant"``), or falls by the end of the run (``"linear"``,
            ``"cosine"``).
        warmup: the rate rises linearly over so many steps, of which the first has 1/warmup of it, or over a
            share of the run if it is below 1.
        floor: what the rate falls to, as a share of it.

    Raises:
        ConfigError: for a name that is not known, or a number out of range.

    >>> Schedule("linear", warmup=2).factor(step=0, total_steps=10)
    0.5
    """

    name: str = "constant"
    warmup: float = 0
    floor: float = 0.0

    def __post_init__(self) -> None:
        if self.name not in ("constant", "linear", "cosine"):
            raise ConfigError(
                f"scheduler={str(self.name)[:60]!r} is not known; use 'constant', 'linear' or 'cosine', with a warm-up "
                "as brim.Schedule('linear', warmup=100); others are functions: scheduler=lambda optimizer: ... (in "
                "YAML a warm-up is {name: linear, warmup: 100})"
            )
        for name in ("warmup", "floor"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
                raise ConfigError(f"scheduler: {name}={value!r} must be a number of at least 0")
        if self.floor > 1:
            raise ConfigError(f"scheduler: floor={self.floor} is a share of the learning rate, so at most 1")

    @property
    def needs_total(self) -> bool:
        return self.name != "constant" or 0 < self.warmup < 1

    def factor(self, step: int, total_steps: int) -> float:
        """What the learning rate is multiplied by at optimizer step ``step``, counted from 0."""
        warmup = int(self.warmup if self.warmup >= 1 else self.warmup * total_steps)
        if step < warmup:
            return (step + 1) / warmup
        if self.name == "constant":
            return 1.0
        done = min(1.0, (step - warmup) / max(1, total_steps - warmup))
        falling = 1 - done if self.name == "linear" else (1 + math.cos(math.pi * done)) / 2
        return self.floor + (1 - self.floor) * falling


Named = str | Schedule | Mapping[str, Any]
SchedulerLike = Named | Callable[[Optimizer], LRScheduler] | LRScheduler


def is_named(wanted: SchedulerLike) -> TypeGuard[Named]:
    """Whether it is one of brim's by name, and not one of the user's making."""
    return isinstance(wanted, str | Schedule | Mapping)


def _number(value: Any) -> Any:
    """YAML takes 1e-1 for a text."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def as_schedule(wanted: str | Schedule | Mapping[str, Any]) -> Schedule:
    """A schedule from its name, or from a mapping with the fields of :class:`Schedule`."""
    if isinstance(wanted, str):
        return Schedule(wanted)
    if isinstance(wanted, Mapping):
        odd = next((key for key in wanted if key not in ("name", "warmup", "floor")), None)
        if odd is not None:
            raise ConfigError(f"scheduler: {odd!r} is not one of its keys, which are name, warmup and floor")
        return Schedule(**{key: _number(value) for key, value in wanted.items()})
    return wanted


def make_scheduler(wanted: SchedulerLike | None, optimizer: Optimizer, total_steps: int | None) -> LRScheduler | None:
    """The schedule of a run, stepped once an optimizer step (ReduceLROnPlateau: once an evaluation)."""
    if wanted is None:
        return None
    if isinstance(wanted, LRScheduler | ReduceLROnPlateau):
        if wanted.optimizer is not optimizer:
            raise ConfigError(
                "scheduler= belongs to another optimizer than this run's; pass that optimizer too, or a function "
                "such as scheduler=lambda optimizer: StepLR(optimizer, 10)"
            )
        return wanted
    if not isinstance(wanted, str | Schedule | Mapping):
        check_takes_one(wanted, "scheduler", "lambda optimizer: StepLR(optimizer, 10)")
        example = "lambda optimizer: LambdaLR(optimizer, lambda step: ...)"
        made = call_with(wanted, optimizer, "scheduler", "the optimizer, and returns a schedule", example)
        if not callable(getattr(made, "step", None)):
            raise ConfigError(f"scheduler= returned {a_type(made)}; it must return a scheduler of torch's")
        if not callable(getattr(made, "state_dict", None)) or not callable(getattr(made, "load_state_dict", None)):
            raise ConfigError(
                f"scheduler= returned {a_type(made)} without state_dict and load_state_dict, so a checkpoint "
                "could not hold where it stands; write both, or use LambdaLR(optimizer, lambda step: ...)"
            )
        _check_step(made)
        return made
    schedule = as_schedule(wanted)
    if schedule == Schedule():
        return None
    if total_steps is None and schedule.needs_total:
        raise ConfigError(
            f"scheduler={schedule.name!r} needs the number of steps, and the data does not say how long an epoch is; "
            "set max_steps="
        )
    return LambdaLR(optimizer, lambda step: schedule.factor(step, total_steps or 0))


def _check_step(scheduler: Any) -> None:
    """Refuse a schedule that is told where it is, as timm's are: here each counts by itself."""
    if isinstance(scheduler, ReduceLROnPlateau):  # it is told the metric
        return
    try:
        inspect.signature(scheduler.step).bind()
    except TypeError as error:
        raise ConfigError(
            f"scheduler= returned {a_type(scheduler)}, whose step cannot be called without arguments "
            f"({error}); use one of torch's, such as LambdaLR(optimizer, lambda step: ...), which count by themselves"
        ) from None
    except ValueError:  # no signature to be read
        return


def take_curve(scheduler: LambdaLR) -> None:
    """Let the rates be those of the schedule's own functions here: what was loaded are those of another curve."""
    rates = [
        base * factor(scheduler.last_epoch)
        for base, factor in zip(scheduler.base_lrs, scheduler.lr_lambdas, strict=True)
    ]
    for group, rate in zip(scheduler.optimizer.param_groups, rates, strict=True):
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate
    scheduler._last_lr = rates


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
    if scheduler is not None and not is_named(scheduler):
        return scheduler
    schedule = as_schedule(scheduler or "constant")
    return schedule if schedule.warmup else replace(schedule, warmup=WARM_UP)
