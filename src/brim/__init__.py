"""brim trains PyTorch models on whatever hardware is there: fill the GPU to the brim, and never over it."""

import gc
import random
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from brim.data import DevicePrefetcher, Loader, Shards, cached, loader_preset, move_data_to_device
    from brim.engine import Callback, Loss, Result, Schedule, Step, Trainer, TwoPass, gather
    from brim.errors import BrimError
    from brim.logits import linear_cross_entropy
    from brim.memory import (
        Forecast,
        Plan,
        check_gpu_memory,
        estimate_memory_usage,
        forecast,
        get_optimal_batch_size,
        largest_batch,
        plan,
        suggest_batch_size,
    )
    from brim.record.loggers import MLflowLogger, WandbLogger
    from brim.sensors.utilization import get_gpu_utilization
    from brim.workloads import load

# Where each public name lives. Imported at first use, so that ``brim --help`` does not wait for torch.
_HOMES = {
    "BrimError": "brim.errors",
    "Callback": "brim.engine",
    "DevicePrefetcher": "brim.data",
    "Forecast": "brim.memory",
    "Loader": "brim.data",
    "Loss": "brim.engine",
    "MLflowLogger": "brim.record.loggers",
    "Plan": "brim.memory",
    "Result": "brim.engine",
    "Schedule": "brim.engine",
    "Shards": "brim.data",
    "Step": "brim.engine",
    "Trainer": "brim.engine",
    "TwoPass": "brim.engine",
    "WandbLogger": "brim.record.loggers",
    "cached": "brim.data",
    "check_gpu_memory": "brim.memory",
    "estimate_memory_usage": "brim.memory",
    "forecast": "brim.memory",
    "gather": "brim.engine",
    "get_gpu_utilization": "brim.sensors.utilization",
    "get_optimal_batch_size": "brim.memory",
    "largest_batch": "brim.memory",
    "linear_cross_entropy": "brim.logits",
    "load": "brim.workloads",
    "loader_preset": "brim.data",
    "move_data_to_device": "brim.data",
    "plan": "brim.memory",
    "suggest_batch_size": "brim.memory",
}
__all__ = [
    "BrimError",
    "Callback",
    "DevicePrefetcher",
    "Forecast",
    "Loader",
    "Loss",
    "MLflowLogger",
    "Plan",
    "Result",
    "Schedule",
    "Shards",
    "Step",
    "Trainer",
    "TwoPass",
    "WandbLogger",
    "cached",
    "check_gpu_memory",
    "estimate_memory_usage",
    "forecast",
    "gather",
    "get_gpu_utilization",
    "get_optimal_batch_size",
    "largest_batch",
    "linear_cross_entropy",
    "load",
    "loader_preset",
    "move_data_to_device",
    "plan",
    "suggest_batch_size",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'brim' has no attribute {name!r}; its public names are {', '.join(__all__)}")
    with _while_importing():
        return getattr(import_module(_HOMES[name]), name)


@contextmanager
def _while_importing() -> Iterator[None]:
    drawn = random.getstate()  # libraries draw when they are first imported: the numbers of whoever imports brim stay
    # Modules are kept, so there is nothing to collect, and looking through all that torch has made takes as long as the
    # import itself.
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        random.setstate(drawn)
        if collects:
            gc.enable()


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
