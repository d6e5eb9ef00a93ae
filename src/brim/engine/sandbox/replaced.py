"""Attributes that have another value for a while."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def replaced(*changes: tuple[Any, str, Any]) -> Iterator[None]:
    """Set attributes, each given as (owner, name, value), and put back what they were.

    >>> from types import SimpleNamespace
    >>> lamp = SimpleNamespace(is_on=False)
    >>> with replaced((lamp, "is_on", True)):
    ...     lamp.is_on
    True
    >>> lamp.is_on
    False
    """
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in changes]
    try:
        for change in changes:
            setattr(*change)
        yield
    finally:
        for change in reversed(before):
            setattr(*change)
