"""The page of a run that goes on, written anew every so often: a run that is killed leaves one as well."""

import time
from collections.abc import Callable

EVERY_SECONDS = 30.0
LEAST_SHARE = 100  # times what writing takes: a long run has a large page, and training waits for it


class LivePage:
    """Writes the page when it is due. ``write`` also sees to it that the numbers so far are on disk."""

    def __init__(self, write: Callable[[], None]) -> None:
        self._write = write
        self._next = time.monotonic() + EVERY_SECONDS

    def write_if_due(self) -> None:
        """Cheap where it is not."""
        now = time.monotonic()
        if now < self._next:
            return
        self._write()
        ended = time.monotonic()
        self._next = ended + max(EVERY_SECONDS, LEAST_SHARE * (ended - now))
