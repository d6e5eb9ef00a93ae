"""Which loggers a run has: by name, by object, or what is usual."""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from brim.arguments.nearest import nearest
from brim.errors import ConfigError, a_type
from brim.record.loggers.logger import Logger
from brim.record.loggers.mlflow_logger import MLflowLogger
from brim.record.loggers.table import CsvLogger
from brim.record.loggers.tensorboard import TensorBoardLogger
from brim.record.loggers.wandb_logger import WandbLogger, is_wandb_run
from brim.record.run_folder import RunFolder

BY_NAME: dict[str, Callable[[Path], Logger]] = {
    "tensorboard": TensorBoardLogger,
    "csv": CsvLogger,
    "wandb": lambda folder: WandbLogger(),
    "mlflow": lambda folder: MLflowLogger(),
}
# Each has a library that keeps runs of its own.
TRACKERS: dict[str, type[WandbLogger] | type[MLflowLogger]] = {"wandb": WandbLogger, "mlflow": MLflowLogger}


def check_loggers(given: Any) -> None:
    """Refuse what cannot be a logger, before anything is written.

    >>> check_loggers(["csv"])
    """
    for one in _listed(given) or ():
        if isinstance(one, type):
            raise ConfigError(f"loggers= holds the class {one.__name__}; hand over an object of it")
        if isinstance(one, str) and one not in BY_NAME:
            near = nearest(one, BY_NAME)
            hint = (
                f"use {', '.join(map(repr, BY_NAME))}, an object, or [] for none"
                if near is None
                else f"did you mean {near!r}?"
            )
            raise ConfigError(f"loggers={one!r} is not known; {hint}")
        if not isinstance(one, str) and not isinstance(one, Logger) and not is_wandb_run(one):
            raise ConfigError(f"loggers= holds {a_type(one)}, which has no write(step, epoch, numbers) and close()")
        if one == "tensorboard" and not (_has_tensorboard() and _imports_tensorboard()):
            raise ConfigError("loggers='tensorboard' needs TensorBoard; pip install 'brim[tensorboard]'")
        for name, kind in TRACKERS.items():
            if (one == name or isinstance(one, kind)) and not _is_installed(name):
                raise ConfigError(f"loggers={name!r} needs the library {name}; pip install 'brim[{name}]'")


def make_loggers(given: Any, folder: RunFolder) -> list[Logger]:
    """Those that were asked for; None for TensorBoard where it is installed."""
    listed = _listed(given)
    if listed is None:
        listed = ["tensorboard"] if _has_tensorboard() else []
    return [_logger(one, folder.location) for one in listed]


def without_trackers(given: Any) -> Any:
    """For a run that leaves no trace: those whose libraries keep runs of their own are left out.

    >>> without_trackers(["wandb", "csv"])
    ['csv']
    """
    listed = _listed(given)
    kinds = tuple(TRACKERS.values())
    return None if listed is None else [
        one for one in listed if not (isinstance(one, str) and one in TRACKERS) and not isinstance(one, kinds)
        and not is_wandb_run(one)
    ]  # fmt: skip


def _logger(one: Any, folder: Path) -> Logger:
    if isinstance(one, str):
        return BY_NAME[one](folder)
    if is_wandb_run(one):
        return WandbLogger(run=one)
    logger: Logger = one
    return logger


def _listed(given: Any) -> list[Any] | None:
    """None for what is usual; a single one is a list of one."""
    if given is None or given is True:
        return None
    if given is False:
        return []
    return list(given) if isinstance(given, list | tuple) else [given]


def _is_installed(name: str) -> bool:
    """Nothing is imported."""
    try:
        return find_spec(name) is not None
    except ValueError:  # it is imported, by hand
        return True


def _has_tensorboard() -> bool:
    """Whether it is installed: nothing is imported."""
    return all(find_spec(name) is not None for name in ("torch.utils.tensorboard", "tensorboard"))


def _imports_tensorboard() -> bool:
    try:
        import torch.utils.tensorboard  # noqa: F401
    except ImportError:
        return False
    return True
