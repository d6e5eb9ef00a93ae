"""What makes the host wait for the device. In a step that is captured nothing may."""

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from brim.replaced import replaced


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
    name, thread = "_cuda_isCurrentStreamCapturing", threading.get_ident()
    asked = getattr(torch.cuda.graphs, name)
    with replaced((torch.cuda.graphs, name, lambda: threading.get_ident() == thread or asked())):
        yield
