"""Python's garbage collector, held back where a collection would cost much or do harm.

A full one looks at every object of the process, 0.2 s where torch and transformers are imported; in a forked process it
writes to all of them, which copies their memory page by page, and what it finds dead there may speak to a GPU that only
the parent can speak to.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.util import register_after_fork


@contextmanager
def gc_paused() -> Iterator[None]:
    """Disable the collector within; processes that are forked meanwhile have it disabled until they enable it."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def freeze_inherited(collects: bool = False) -> None:
    """In a forked process: what is there already is never collected here; what is its own is, where it ``collects``."""
    gc.freeze()
    if collects:
        gc.enable()


class _AtFork:
    """While an instance exists, forked processes freeze what they inherit before anything else."""

    def __init__(self) -> None:
        self.collects = gc.isenabled()
        register_after_fork(self, lambda this: freeze_inherited(this.collects))


@contextmanager
def gc_safe_forks() -> Iterator[None]:
    """Around somebody else's code that may fork workers: they never collect what is there already (a dead CUDA graph
    would abort them), and collect what is their own as ever."""
    at_fork = _AtFork()
    with gc_paused():
        yield
    del at_fork
