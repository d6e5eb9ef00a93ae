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
    # As it stands in the owner: asked for it, a class would give a function in the place of its static method.
    before = [(owner, name, _own(owner).get(name, getattr(owner, name))) for owner, name, _ in changes]
    inherited = [name not in _own(owner) for owner, name, _ in changes]
    try:
        for change in changes:
            setattr(*change)
        yield
    finally:
        for (owner, name, value), was_inherited in reversed(list(zip(before, inherited, strict=True))):
            if was_inherited and name in _own(owner):
                delattr(owner, name)
            else:
                setattr(owner, name, value)


def _own(owner: Any) -> Any:
    return getattr(owner, "__dict__", {})
