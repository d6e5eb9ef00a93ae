"""Lines of source, as whoever wrote the model knows them."""

import os
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from traceback import walk_tb
from types import FrameType, TracebackType

import torch

# With the separator at the end: torchvision and torchmetrics lie beside torch.
OURS = tuple(str(Path(file).parent) + os.sep for file in (torch.__file__, __file__))


@cache
def is_the_users(file: str) -> bool:
    """Whether a source file is neither torch's nor brim's."""
    return not (file.startswith((*OURS, "<")) or file.endswith("/contextlib.py"))


def line_of_the_user(traceback: TracebackType | None = None) -> str:
    """The innermost line of source that is neither torch's nor brim's: of the code that runs, or of a traceback."""
    if traceback is None:
        return next((at for at in _frames(sys._getframe(1)) if at), "")
    lines = [_place(frame, line) for frame, line in walk_tb(traceback)]
    return next((at for at in reversed(lines) if at), "")


def _frames(frame: FrameType | None) -> Iterator[str]:
    while frame is not None:
        yield _place(frame, frame.f_lineno)
        frame = frame.f_back


def _place(frame: FrameType, line: int) -> str:
    file = frame.f_code.co_filename
    return f"{file}:{line}" if is_the_users(file) else ""
