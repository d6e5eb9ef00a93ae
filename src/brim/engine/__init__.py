"""The training loop and everything it is made of.

In: a model, data and settings. Out: a trained model and its run folder (``Trainer``), or one step of a loop of the
user's (``Step``).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from brim.engine.components.loss import Loss
from brim.engine.components.schedule import Schedule
from brim.engine.components.two_pass import TwoPass
from brim.engine.control.callbacks import Callback
from brim.engine.own_step import Step
from brim.engine.run_folder.result import Result
from brim.engine.trainer import Trainer

if TYPE_CHECKING:
    from brim.engine.gathering.gather import gather

__all__ = ["Callback", "Loss", "Result", "Schedule", "Step", "Trainer", "TwoPass", "gather"]


def __getattr__(name: str) -> Any:
    if name == "gather":  # it is kept from torch.compile, whose import takes longer than all of brim's
        return import_module("brim.engine.gathering.gather").gather
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
