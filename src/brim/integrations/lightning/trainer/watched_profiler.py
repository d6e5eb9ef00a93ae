"""How long Lightning's loop waits for batches: told by what it profiles, for callbacks hear nothing of it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

READING = "train_dataloader_next"  # of the loop that trains; the validation's has another name


class WatchedProfiler:
    """A profiler of Lightning's, which hears everything as before, and two functions that hear of the reading."""

    def __init__(self, profiler: Any, asks: Callable[[], Any], has: Callable[[], Any]) -> None:
        self.profiler = profiler
        self._asks, self._has = asks, has

    def start(self, action_name: str) -> None:
        self.profiler.start(action_name)
        if READING in action_name:
            self._asks()

    def stop(self, action_name: str) -> None:
        if READING in action_name:
            self._has()
        self.profiler.stop(action_name)

    @contextmanager
    def profile(self, action_name: str) -> Iterator[str]:
        """As Lightning's own, which would call its own ``start`` and ``stop``."""
        try:
            self.start(action_name)
            yield action_name
        finally:
            self.stop(action_name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.profiler, name)
