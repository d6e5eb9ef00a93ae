"""Whoever reads what a command prints, and may stop reading: ``brim runs --json | head``."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def until_the_reader_leaves() -> Iterator[None]:
    """A pipe that nobody reads any more ends the command, and is no error."""
    try:
        yield
    except BrokenPipeError:
        # Python would complain once more, when it flushes what nobody reads at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
