"""Warnings that nobody is to see for a while."""

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

_CHANGING = threading.Lock()


@contextmanager
def ignored_warnings() -> Iterator[None]:
    """Within, no warning is shown.

    ``warnings.catch_warnings`` puts back all filters as they were: of two threads that overlap, the second would put
    back the first one's for good. This takes away what it has added, and nothing else.

    >>> with ignored_warnings():
    ...     warnings.warn("unheard", stacklevel=1)
    """
    own = ("ignore", None, Warning, None, 0)
    with _CHANGING:
        before = warnings.filters
        warnings.filters.insert(0, own)  # type: ignore[attr-defined]
    try:
        yield
    finally:
        with _CHANGING:
            for filters in (before, warnings.filters):  # somebody else's catch_warnings has made another list, perhaps
                places = [place for place, one in enumerate(filters) if one is own]
                for place in places:
                    del filters[place]  # type: ignore[attr-defined]
