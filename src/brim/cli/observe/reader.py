"""Whoever reads what a command prints, and may stop reading: ``brim runs --json | head``."""

import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def until_the_reader_leaves() -> Iterator[None]:
    """A pipe that nobody reads any more ends the command, and is no error; pipes to other processes are not meant."""
    try:
        yield
        sys.stdout.flush()  # a short output would fail at Python's end
    except BrokenPipeError:
        if not _has_left():
            raise
        # Python would complain once more, when it flushes what nobody reads at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _has_left() -> bool:
    """Whether standard output is a pipe without a reader: that is an error of it, which poll always tells."""
    poller = select.poll()
    poller.register(sys.stdout.fileno(), 0)
    return bool(poller.poll(0))
