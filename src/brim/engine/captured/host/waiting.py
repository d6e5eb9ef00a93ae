"""What makes the host wait for the device. In a step that is captured nothing may."""

import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from brim.replaced import replaced

ASKED = "_cuda_isCurrentStreamCapturing"


@contextmanager
def no_waiting() -> Iterator[None]:
    """Whatever makes the host wait for the device is an error."""
    mode = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that this mode is a prototype is of no interest to anybody's terminal
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(mode)


@contextmanager
def as_if_capturing() -> Iterator[None]:
    """This thread is told that its stream is being captured, though it is not.

    Some code waits for the device in eager steps only: transformers looks whether a mask hides anything, and leaves
    that out while a stream is captured. A pass in this shows what would be in the way of capturing, by its line, and
    without a capture that breaks off in the middle.
    """
    asked = getattr(torch.cuda.graphs, ASKED)
    if asked is not _answer:
        _answer.truth = asked
    before, _answer.yes.is_said = _answer.yes.is_said, True
    try:
        with replaced((torch.cuda.graphs, ASKED, _answer)):
            yield
    finally:
        _answer.yes.is_said = before


class _Yes(threading.local):
    is_said = False


class _Answer:
    """One object for all times: compiled code is compiled anew where another one is in its place."""

    def __init__(self) -> None:
        self.truth: Callable[[], bool] = lambda: False
        self.yes = _Yes()

    def __call__(self) -> bool:
        return self.yes.is_said or bool(self.truth())


_answer = _Answer()
