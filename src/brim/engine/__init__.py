"""The training loop and everything it is made of."""

from brim.engine.components.loss import Loss
from brim.engine.components.schedule import Schedule
from brim.engine.components.two_pass import TwoPass
from brim.engine.control.callbacks import Callback
from brim.engine.gathering.gather import gather
from brim.engine.own_step import Step
from brim.engine.run_folder.result import Result
from brim.engine.trainer import Trainer

__all__ = ["Callback", "Loss", "Result", "Schedule", "Step", "Trainer", "TwoPass", "gather"]
