"""Lightning's own classes, by whichever name it is installed."""

import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from brim.errors import ConfigError

NAMES = ("lightning.pytorch", "pytorch_lightning")


def callback_class() -> Any:
    """The class that callbacks derive from: of the name that the program has imported, or that is installed.

    Lightning calls callbacks by the names of their hooks, so one of either name serves both trainers.
    """
    loaded = [name for name in NAMES if name in sys.modules]
    installed = [name for name in NAMES if find_spec(name.split(".")[0]) is not None]
    if not loaded and not installed:
        return NotInstalled
    return import_module((loaded or installed)[0]).Callback


class NotInstalled:
    """In the place of Lightning's class, where there is none."""

    def __init__(self) -> None:
        raise ConfigError('Lightning is not installed; pip install "brim[lightning]"')
