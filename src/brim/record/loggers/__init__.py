"""Where the numbers of a run go beside metrics.jsonl: TensorBoard, a table, W&B, MLflow, or whatever the user has.

In: what ``loggers=`` says, and lines of numbers. Out: files of these libraries, or what they send; nothing of theirs is
imported before it is asked for.
"""

from brim.record.loggers.chosen import check_loggers, make_loggers, without_trackers
from brim.record.loggers.logger import Logger
from brim.record.loggers.mlflow_logger import MLflowLogger
from brim.record.loggers.table import CsvLogger
from brim.record.loggers.tensorboard import TensorBoardLogger
from brim.record.loggers.wandb_logger import WandbLogger

__all__ = [
    "CsvLogger",
    "Logger",
    "MLflowLogger",
    "TensorBoardLogger",
    "WandbLogger",
    "check_loggers",
    "make_loggers",
    "without_trackers",
]
