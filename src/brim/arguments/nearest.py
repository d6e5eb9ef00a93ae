"""The known name that somebody may have meant."""

import difflib
from collections.abc import Iterable

USUAL = 0.6  # as difflib measures likeness


def nearest(name: str, known: Iterable[str], at_least: float = USUAL) -> str | None:
    """The one that looks most like ``name``; None where none does, or there is none.

    >>> nearest("epoch", ["epochs", "lr"]), nearest("x", ["epochs", "lr"])
    ('epochs', None)
    """
    return next(iter(difflib.get_close_matches(name, list(known), n=1, cutoff=at_least)), None)
