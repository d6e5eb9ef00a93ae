"""Will it fit: training steps on fake tensors, their storages through a model of the allocator, and a plan.

In: a model, a batch, a card. Out: bytes by part, the largest batch, the settings that fit; nothing is allocated.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from brim.memory.forecast import Forecast, forecast
from brim.memory.planning.estimates import (
    check_gpu_memory,
    estimate_memory_usage,
    get_optimal_batch_size,
    suggest_batch_size,
)
from brim.memory.planning.largest import largest_batch
from brim.memory.planning.plan import Plan, plan

if TYPE_CHECKING:
    from brim.speed_up.forecast import speed_up
    from brim.speed_up.measured_link import measure_all_reduce
    from brim.speed_up.scaled import Scaled, SpeedUp

# The room above, under the names that it has always had here; imported when they are asked for.
SPEED_UP = {
    "Scaled": "brim.speed_up.scaled",
    "SpeedUp": "brim.speed_up.scaled",
    "measure_all_reduce": "brim.speed_up.measured_link",
    "speed_up": "brim.speed_up.forecast",
}

__all__ = [
    "Forecast",
    "Plan",
    "Scaled",
    "SpeedUp",
    "check_gpu_memory",
    "estimate_memory_usage",
    "forecast",
    "get_optimal_batch_size",
    "largest_batch",
    "measure_all_reduce",
    "plan",
    "speed_up",
    "suggest_batch_size",
]


def __getattr__(name: str) -> Any:
    if name in SPEED_UP:
        return getattr(import_module(SPEED_UP[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
