"""Will it fit: training steps on fake tensors, their storages through a model of the allocator, and a plan."""

from brim.memory.estimates import (
    check_gpu_memory,
    estimate_memory_usage,
    get_optimal_batch_size,
    suggest_batch_size,
)
from brim.memory.forecast import Forecast, forecast
from brim.memory.largest import largest_batch
from brim.memory.plan import Plan, plan

__all__ = [
    "Forecast",
    "Plan",
    "check_gpu_memory",
    "estimate_memory_usage",
    "forecast",
    "get_optimal_batch_size",
    "largest_batch",
    "plan",
    "suggest_batch_size",
]
