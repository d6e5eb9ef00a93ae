"""What a run's schedule was when it began, so that a resumed run can be told that its own is another one."""

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from types import FunctionType
from typing import Any

from torch.optim.lr_scheduler import LRScheduler

from brim.engine.components.schedule import SchedulerLike, as_schedule, is_named
from brim.engine.components.schedule_unit import EVALUATION, STEP
from brim.engine.sandbox.trial_call import trial_call
from brim.engine.state.host_copy import without_numpy

MOST_KEYS = 4
NAMED = ("constant", "linear", "cosine")
# What steps change in torch's schedules: no setting of theirs.
MOVING = {
    "last_epoch", "_step_count", "_last_lr", "_get_lr_called_within_step", "_is_initial", "T_cur", "T_i", "best",
    "num_bad_epochs", "cooldown_counter", "last_lr",
}  # fmt: skip
FACTORS = "factors"  # of functions, which no state_dict holds
COUNTS = [*range(200), *[int(200 * 1.05**power) for power in range(175)]]  # at which functions are asked, to a million


@dataclass(frozen=True)
class ScheduleRecord:
    """``kind`` is how people would call it; ``settings`` are what it started with, and ``total`` its last step.

    ``unit`` is what it counts: checkpoints of earlier versions have none, and counted steps.
    """

    kind: str = "none"
    settings: dict[str, Any] = field(default_factory=dict)
    total: int | None = None  # where the schedule depends on it
    unit: str = STEP
    unit_is_asked: bool = False  # by the user of this run; not a part of what is saved

    @classmethod
    def of(
        cls,
        wanted: SchedulerLike | None,
        made: LRScheduler | None,
        total_steps: int | None,
        unit: str = STEP,
        unit_is_asked: bool = False,
    ) -> "ScheduleRecord":
        """Of what the user asked for: how many ranks there are may decide what is made of it (``scale_lr``)."""
        if wanted is None or is_named(wanted):
            schedule = as_schedule(wanted or "constant")
            return cls(schedule.name, asdict(schedule), total_steps if schedule.needs_total else None)
        settings = {} if made is None else plain_settings(made.state_dict())
        if factors := [_factors_of(function) for function in _functions_in(made)]:
            settings[FACTORS] = factors
        return cls(type(made).__name__, settings, None, unit, unit_is_asked)

    @property
    def is_named(self) -> bool:
        """Whether it is one of brim's."""
        return self.kind in NAMED

    def refusal(self, now: "ScheduleRecord") -> str | None:
        """Why a run with the schedule ``now`` cannot go on from here; None where it can."""
        if self.kind == now.kind and now.unit_is_asked and self.unit != now.unit:
            return (
                f"its schedule {self.kind} counted {self.unit}s, and this run's counts {now.unit}s; leave "
                f"scheduler_every out, or begin a new run with another run_dir"
            )
        is_other = self.kind != now.kind or (self.is_named and self.settings != now.settings)
        if not is_other:
            return None
        return (
            f"it was made with the schedule {self.describe()}, and this run has {now.describe()}; pass scheduler= as "
            "it was, or begin a new run with another run_dir"
        )

    def ends_elsewhere(self, now: "ScheduleRecord") -> bool:
        """Whether it is a curve up to the end of the run, and that is another one now."""
        return self.total is not None and now.total is not None and self.total != now.total

    def remark(self, now: "ScheduleRecord") -> str | None:
        """What to tell whoever goes on with other settings of the same schedule; None where they are the same."""
        if self.ends_elsewhere(now):
            return (
                f"the schedule {self.kind} was to end at step {self.total:,} and ends at step {now.total:,} now, so "
                "the learning rate goes on with the value that the new curve has here"
            )
        differ = [key for key, value in self.settings.items() if now.settings.get(key, value) != value]
        if FACTORS in differ:
            return self._remark_on_functions(self.settings[FACTORS], now.settings[FACTORS])
        if not differ:
            return None
        told = ", ".join(f"{key} {_short(self.settings[key])}" for key in differ[:MOST_KEYS])
        return f"going on with the schedule of the checkpoint ({told}), not with the one that was passed"

    def _remark_on_functions(self, then: list[list[float]], now: list[list[float]]) -> str:
        pairs = (
            (count, *both)
            for one, other in zip(then, now, strict=False)
            for count, *both in zip(COUNTS, one, other, strict=False)
        )
        count, before, after = next((pair for pair in pairs if pair[1] != pair[2]), (0, math.nan, math.nan))
        gave = "" if math.isnan(before) else f" (it gave {before:g} at {self.unit} {count:,}, and gives {after:g} now)"
        told = f"the function of {self.kind} is not the one that the run began with{gave}"
        return f"{told}: the run goes on with the new one"

    def describe(self) -> str:
        """For people, on one line."""
        own = {key: value for key, value in self.settings.items() if key in ("warmup", "floor") and value}
        told = ", ".join(f"{key}={value:g}" for key, value in own.items())
        return f"{self.kind} ({told})" if told else self.kind

    def counting_as(self, then: "ScheduleRecord") -> "ScheduleRecord":
        """This run's, counted as in the run that it continues: what a kind counts may depend on how long a run is."""
        return self if EVALUATION in (self.unit, then.unit) else replace(self, unit=then.unit)

    def to_saved(self) -> dict[str, Any]:
        return {key: value for key, value in asdict(self).items() if key != "unit_is_asked"}

    @classmethod
    def from_saved(cls, saved: Any) -> "ScheduleRecord | None":
        """What :meth:`to_saved` gave; None for a checkpoint of an earlier version."""
        if not isinstance(saved, dict) or not {"kind", "settings", "total", "unit"}.issuperset(saved):
            return None
        return cls(**saved)


def plain_settings(state: Any) -> Any:
    """The numbers and words of a schedule's state that steps do not change; what else it holds cannot be compared.

    >>> plain_settings({"step_size": 3, "last_epoch": 7, "lr_lambdas": [print]})
    {'step_size': 3}
    """
    if isinstance(state, dict):
        kept = {key: plain_settings(value) for key, value in without_numpy(state).items() if key not in MOVING}
        return {key: value for key, value in kept.items() if _is_plain(value)}
    return [plain_settings(value) for value in state] if isinstance(state, list | tuple) else state


def _functions_in(scheduler: Any) -> Iterator[Callable[[int], Any]]:
    """Functions of the count alone, also of schedules within; what objects keep is in the schedule's state."""
    for function in getattr(scheduler, "lr_lambdas", ()):
        if isinstance(function, FunctionType) or not getattr(function, "__dict__", None):
            yield function
    for inner in getattr(scheduler, "_schedulers", ()):
        yield from _functions_in(inner)


def _factors_of(function: Callable[[int], Any]) -> list[float]:
    """What it gives at :data:`COUNTS`, up to the first that it fails for: a list of rates ends somewhere."""
    found: list[float] = []
    try:
        with trial_call(function):
            for count in COUNTS:
                found.append(float(function(count)))
    except Exception:  # of the user's code, or what it holds cannot be put back
        return found
    return found


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(_is_plain(key) and _is_plain(item) for key, item in value.items())
    return isinstance(value, str | int | float | bool | None)


def _short(value: Any) -> str:
    told = str(value)
    return told if len(told) <= 40 else f"{told[:37]}..."
