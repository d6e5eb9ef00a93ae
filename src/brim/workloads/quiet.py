"""Runs that say nothing: where there are many of them, and what is told is what comes of them all."""

import io
import logging
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr


@contextmanager
def quietly() -> Iterator[None]:
    """Without what runs and compilers say about themselves on stderr and through loggers."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)  # torch's loggers keep the stderr that they began with
    try:
        with redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.disable(before)
