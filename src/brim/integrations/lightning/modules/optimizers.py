"""What ``configure_optimizers`` returns, in whichever of its forms, as one optimizer and one schedule."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import ChainedScheduler, ReduceLROnPlateau

from brim.errors import ConfigError, a_type

KEYS = ("scheduler", "name", "interval", "frequency", "reduce_on_plateau", "monitor", "strict")


@dataclass(frozen=True)
class Scheduled:
    """One schedule of ``configure_optimizers``, with what Lightning keeps of it in ``trainer.lr_scheduler_configs``."""

    scheduler: Any
    interval: str = "epoch"
    monitor: str | None = None
    name: str | None = None
    strict: bool = True
    frequency: int = 1

    @property
    def reduce_on_plateau(self) -> bool:
        return isinstance(self.scheduler, ReduceLROnPlateau)


@dataclass(frozen=True)
class Optimization:
    """An optimizer, its schedule, what that counts, and the metric that a ReduceLROnPlateau follows.

    ``scheduler`` is what a run steps, all of ``scheduled`` in one.
    """

    optimizer: Optimizer
    scheduler: Any = None
    every: str | None = None
    monitor: str | None = None
    mode: str | None = None
    scheduled: tuple[Scheduled, ...] = ()


def optimization_of(returned: Any, warn: Callable[[str], Any] = lambda sentence: None) -> Optimization:
    """The forms that Lightning knows; several optimizers, and what brim's loop cannot count, are refused.

    >>> from torch import nn
    >>> from torch.optim import SGD
    >>> optimizer = SGD(nn.Linear(1, 1).parameters(), lr=0.1)
    >>> optimization_of({"optimizer": optimizer}).optimizer is optimizer
    True
    """
    optimizers, schedulers, monitor = _parts(returned)
    if len(optimizers) != 1:
        raise ConfigError(
            f"configure_optimizers returns {len(optimizers)} optimizers, and one step here has one; use parameter "
            "groups of one optimizer, or write the loop with a brim.Step for each"
        )
    optimizer = optimizers[0]
    if not isinstance(optimizer, Optimizer):
        raise ConfigError(f"configure_optimizers returns {a_type(optimizer)} where an optimizer should be")
    made = [_scheduled(one, monitor, warn) for one in schedulers]
    if not made:
        return Optimization(optimizer)
    if len({one.interval for one in made}) > 1:
        raise ConfigError(
            "configure_optimizers returns schedules of steps and of epochs, and a run here has one count; write them "
            "as one LambdaLR with interval='step'"
        )
    first = made[0]
    if len(made) == 1:
        mode = first.scheduler.mode if isinstance(first.scheduler, ReduceLROnPlateau) else None
        every = None if mode is not None else first.interval  # that one counts evaluations
        return Optimization(optimizer, first.scheduler, every, first.monitor, mode, tuple(made))
    if any(isinstance(one.scheduler, ReduceLROnPlateau) for one in made):
        raise ConfigError(
            "configure_optimizers returns a ReduceLROnPlateau beside another schedule, and a run here has one that "
            "waits for evaluations or one that counts; leave one of them out"
        )
    chained = ChainedScheduler([one.scheduler for one in made])
    return Optimization(optimizer, chained, first.interval, scheduled=tuple(made))


def _parts(returned: Any) -> tuple[list[Any], list[Any], str | None]:
    """Optimizers, schedules and the monitor beside them, as Lightning tells its forms apart."""
    if returned is None:
        raise ConfigError("configure_optimizers returns None, so nothing would be trained; return an optimizer")
    if isinstance(returned, Optimizer):
        return [returned], [], None
    if isinstance(returned, Mapping):
        return [_of_dict(returned)], _schedule_in(returned), returned.get("monitor")
    if isinstance(returned, list | tuple):
        if len(returned) == 2 and isinstance(returned[0], list):
            schedulers = returned[1] if isinstance(returned[1], list) else [returned[1]]
            return list(returned[0]), list(schedulers), None
        if returned and all(isinstance(one, Mapping) for one in returned):
            monitor = returned[0].get("monitor")
            return [_of_dict(one) for one in returned], [s for one in returned for s in _schedule_in(one)], monitor
        return list(returned), [], None
    raise ConfigError(
        f"configure_optimizers returns {a_type(returned)}; return an optimizer, [optimizer], "
        '([optimizer], [scheduler]) or {"optimizer": ..., "lr_scheduler": ...}'
    )


def _of_dict(returned: Mapping[str, Any]) -> Any:
    if "optimizer" not in returned:
        raise ConfigError('configure_optimizers returns a dict without "optimizer"; add it')
    return returned["optimizer"]


def _schedule_in(returned: Mapping[str, Any]) -> list[Any]:
    given = returned.get("lr_scheduler")
    return [] if given is None else [given]


def _scheduled(given: Any, monitor: str | None, warn: Callable[[str], Any]) -> Scheduled:
    if isinstance(given, str):
        raise ConfigError(f"configure_optimizers returns the lr_scheduler {given!r}; return a scheduler of torch's")
    if not isinstance(given, Mapping):
        _check_plateau(given, monitor)
        return Scheduled(given, monitor=monitor)
    if "scheduler" not in given:
        raise ConfigError('the lr_scheduler of configure_optimizers is a dict without "scheduler"; add it')
    unknown: Sequence[str] = [key for key in given if key not in KEYS]
    if unknown:
        warn(
            f"{', '.join(map(repr, unknown))} in the lr_scheduler of configure_optimizers mean nothing, as in Lightning"
        )
    scheduler, interval = given["scheduler"], given.get("interval") or "epoch"
    if interval not in ("step", "epoch"):
        raise ConfigError(f"the lr_scheduler has interval={interval!r}; write 'step' or 'epoch'")
    if given.get("frequency", 1) != 1:
        raise ConfigError(
            f"the lr_scheduler has frequency={given['frequency']}, and schedules here step at every {interval}; write "
            "the frequency into the schedule (a step_size so many times larger)"
        )
    is_plateau = isinstance(scheduler, ReduceLROnPlateau)
    if given.get("reduce_on_plateau", is_plateau) != is_plateau:
        raise ConfigError("reduce_on_plateau is for torch's ReduceLROnPlateau here; leave it out")
    if is_plateau and interval == "step":
        raise ConfigError("a ReduceLROnPlateau waits for evaluations here; write interval='epoch'")
    own = given.get("monitor")
    _check_plateau(scheduler, own)
    return Scheduled(scheduler, interval, own if is_plateau else None, given.get("name"), given.get("strict", True))


def _check_plateau(scheduler: Any, monitor: str | None) -> None:
    if isinstance(scheduler, ReduceLROnPlateau) and monitor is None:
        raise ConfigError(
            'a ReduceLROnPlateau needs the metric that it follows: {"scheduler": ..., "monitor": "val_loss"}'
        )
