"""Whose a line of source is: torch's, brim's or the user's; and the user's errors, told with their line."""

import os
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from traceback import walk_tb
from types import FrameType, TracebackType

import torch

from brim.errors import BrimError, ModelError, said

# With the separator at the end: torchvision and torchmetrics lie beside torch.
TORCH, BRIM = (str(Path(file).parent) + os.sep for file in (torch.__file__, __file__))
FORECAST = tuple(f"{BRIM}{room}{os.sep}" for room in ("memory", "speed_up"))
PYTHON = sysconfig.get_paths()["stdlib"] + os.sep
PACKAGES = ("/site-packages/", "/dist-packages/")  # below Python's own folder, and not Python's


def is_foreign(file: str) -> bool:
    """Whether a source file is neither torch's nor brim's nor Python's own, but of a user or a user's library."""
    return _is_outside(file, (TORCH, BRIM, "<frozen"))


def is_users_own(file: str) -> bool:
    """The same, without installed libraries.

    >>> is_users_own("/home/anna/brim/train.py"), is_users_own(torch.nn.__file__)
    (True, False)
    """
    return is_foreign(file) and not file.startswith("<") and not any(folder in file for folder in PACKAGES)


@cache
def is_of_job(file: str) -> bool:
    """Whether a source file is of the job that is forecast: brim's workloads and losses are, the forecast is not."""
    return _is_outside(file, (TORCH, *FORECAST, "<"))


def _is_outside(file: str, folders: tuple[str, ...]) -> bool:
    if file.startswith(folders):
        return False
    return not file.startswith(PYTHON) or any(folder in file for folder in PACKAGES)


def innermost_line(traceback: TracebackType | None, is_wanted: Callable[[str], bool] = is_users_own) -> str:
    """The innermost line of such a file that an error passed through, as ``file:number``; empty where there is none."""
    lines = [(frame.f_code.co_filename, number) for frame, number in walk_tb(traceback)]
    return next((f"{file}:{number}" for file, number in reversed(lines) if is_wanted(file)), "")


def line_at_fault(traceback: TracebackType | None) -> str:
    """The user's line that an error came from; empty where brim's own code, called from there or not, is at fault."""
    line = innermost_line(traceback, lambda file: file.startswith(BRIM) or is_users_own(file))
    return "" if line.startswith(BRIM) else line


def line_of_job(traceback: TracebackType | None = None) -> str:
    """The innermost line of the job that is forecast, as ``file:number``: of the code that runs, or of a traceback."""
    if traceback is not None:
        return innermost_line(traceback, is_of_job)
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not is_of_job(frame.f_code.co_filename):
        frame = frame.f_back
    return "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


def users_stacklevel() -> int:
    """What ``warnings.warn``, called next, takes as ``stacklevel`` to point at the line that called brim."""
    frame, level = sys._getframe(1), 1
    while frame.f_code.co_filename.startswith(BRIM) and frame.f_back is not None:
        frame, level = frame.f_back, level + 1
    return level


@contextmanager
def users_errors(doing: str, module: Callable[[], str] = str) -> Iterator[None]:
    """What goes wrong in the user's code is told as the user's error, with its line and the ``module`` it arose in."""
    try:
        yield
    except BrimError:
        raise
    except Exception as error:
        line, where = _line_of_error(error), module()
        at = (f" at {line}" if line else "") + (f" in {where}" if where else "")
        raise ModelError(f"{doing} failed{at}: {said(error)}") from error


def _line_of_error(error: Exception) -> str:
    if isinstance(error, SyntaxError):
        return f"{error.filename}:{error.lineno}"
    here = error.__traceback__
    below = here.tb_next.tb_next if here and here.tb_next else None  # below this module and the call of brim's
    return (innermost_line(below) or line_of_job(below)) if below else ""
