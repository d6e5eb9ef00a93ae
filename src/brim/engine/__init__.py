"""The training loop and everything it is made of."""

from brim.engine.callbacks import Callback
from brim.engine.loss import Loss
from brim.engine.own_step import Step
from brim.engine.result import Result
from brim.engine.schedule import Schedule
from brim.engine.trainer import Trainer

__all__ = ["Callback", "Loss", "Result", "Schedule", "Step", "Trainer"]
