"""Lightning: its modules in brim's loop, and brim's parts in its own.

In come LightningModules, data modules and loaders, of ``lightning`` or of ``pytorch_lightning``; out come runs of
brim's (:func:`train`), or callbacks, forecasts and a mixin for Lightning's trainer. docs/lightning.md says what is
translated.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from brim.integrations.lightning.modules.training import train
    from brim.integrations.lightning.trainer.batch_size import BatchSizeForecast
    from brim.integrations.lightning.trainer.callback import BrimCallback
    from brim.integrations.lightning.trainer.manual_step import ManualStep
    from brim.integrations.lightning.trainer.memory_forecast import forecast, largest_batch
    from brim.integrations.lightning.trainer.transfer import DeviceLoader, TransfersBatches

# Imported at first use: the callbacks derive from Lightning's class, which takes seconds to import.
_HOMES = {
    "BatchSizeForecast": "trainer.batch_size",
    "BrimCallback": "trainer.callback",
    "DeviceLoader": "trainer.transfer",
    "ManualStep": "trainer.manual_step",
    "TransfersBatches": "trainer.transfer",
    "forecast": "trainer.memory_forecast",
    "largest_batch": "trainer.memory_forecast",
    "train": "modules.training",
}
__all__ = [
    "BatchSizeForecast",
    "BrimCallback",
    "DeviceLoader",
    "ManualStep",
    "TransfersBatches",
    "forecast",
    "largest_batch",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; its names are {', '.join(__all__)}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
