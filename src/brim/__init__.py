"""brim trains PyTorch models on whatever hardware is there: fill the GPU to the brim, and never over it."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from brim.data import Loader, move_data_to_device
    from brim.engine import Callback, Loss, Result, Schedule, Trainer
    from brim.errors import BrimError
    from brim.workloads import load

# Where each public name lives. Imported at first use, so that ``brim --help`` does not wait for torch.
_HOMES = {
    "BrimError": "brim.errors",
    "Callback": "brim.engine",
    "Loader": "brim.data",
    "Loss": "brim.engine",
    "Result": "brim.engine",
    "Schedule": "brim.engine",
    "Trainer": "brim.engine",
    "load": "brim.workloads",
    "move_data_to_device": "brim.data",
}
__all__ = [
    "BrimError",
    "Callback",
    "Loader",
    "Loss",
    "Result",
    "Schedule",
    "Trainer",
    "load",
    "move_data_to_device",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'brim' has no attribute {name!r}; its public names are {', '.join(__all__)}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
