"""Data that callbacks change between two steps, while the next batch has been read already and is on its way to a GPU.

A loop by hand reads that batch after the change. So it is read again where that gives the very same but for the change,
and from then on each batch is read when its step comes.
"""

from collections.abc import Callable
from typing import Any

from brim.data import DevicePrefetcher, Feed, Loader
from brim.data.feed import ReadyBatches
from brim.data.probing.state import StateWatch, brief_watch

Tell = Callable[[str, str], Any]


class ReadAhead:
    """Looks at the data of ``feed`` before and after each step, where callbacks have hooks and batches are ahead."""

    def __init__(self, feed: Feed, prefetcher: DevicePrefetcher, has_onlookers: bool, say: Tell, warn: Tell) -> None:
        self._prefetcher, self._say, self._warn = prefetcher, say, warn
        self._data = _read_here(feed) if has_onlookers and prefetcher.runs_ahead and prefetcher.ahead else None
        self._comes_again = isinstance(feed, Loader) or isinstance(getattr(feed, "source", None), list | tuple)
        self._watch: StateWatch | None = None

    def note(self, is_alone: bool) -> None:
        """A step comes next, and batches after it have been read."""
        self._comes_again = self._comes_again and is_alone  # ranks compare what they read while they read it
        if self._data is None:
            return
        is_first, self._watch = self._watch is None, brief_watch(self._data)
        if is_first and not _can_be_told(self._data):
            self._data = self._watch = None

    def must_come_again(self) -> bool:
        """Whether what was read ahead has to be read again; tells of it."""
        if self._watch is None or (name := self._watch.changed()) is None:
            return False
        comes_again = self._comes_again and _can_be_told(self._data)  # else reading may have changed it
        self._data, self._watch, self._prefetcher.ahead = None, None, 0
        said = f"data: {name} was changed between two steps, so each batch is read when its step comes"
        if comes_again:
            self._say(f"{said}, and not while the one before it is computed", "data")
        else:
            self._warn(f"{said} from here on; the next one had been read before the change", "data")
        return comes_again


def _can_be_told(data: Any) -> bool:
    """Whether what has not changed looks so; a generator does not."""
    return brief_watch(data).changed() is None


def _read_here(feed: Feed) -> Any:
    """What batches are made of, where this process reads them."""
    if isinstance(feed, Loader):
        return None if feed.samples is None or feed.choice.workers or feed.hands_out_blocks else feed.data
    source = feed.source if isinstance(feed, ReadyBatches) else None
    return None if getattr(source, "num_workers", 0) else getattr(source, "dataset", source)
