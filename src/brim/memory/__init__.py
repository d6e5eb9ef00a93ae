"""Will it fit: training steps on fake tensors, their storages through a model of the allocator, and a plan."""

from brim.memory.estimates import (
    check_gpu_memory,
    estimate_memory_usage,
    get_optimal_batch_size,
    suggest_batch_size,
)
from brim.memory.forecast import Forecast, forecast
from brim.memory.largest import largest_batch
from brim.memory.measured_link import measure_all_reduce
from brim.memory.plan import Plan, plan
from brim.memory.scaled import Scaled, SpeedUp
from brim.memory.speed_up import speed_up

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
