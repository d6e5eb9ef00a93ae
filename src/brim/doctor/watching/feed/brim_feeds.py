"""brim's own feeds, watched where a trainer takes batches from them, like a DataLoader."""

from collections.abc import Iterator
from typing import Any
from weakref import WeakKeyDictionary

from torch.profiler import record_function

from brim.doctor.trace.events import LOADER
from brim.doctor.watching.feed.loader_hooks import LoaderHooks
from brim.doctor.watching.feed.watched_loader import WatchedLoader


def watch_brims_feeds(hooks: LoaderHooks) -> None:
    """Count what a trainer of brim's waits for batches, which it takes through a prefetcher: one for each purpose."""
    from brim.data.batches.prefetch import DevicePrefetcher

    fetch = DevicePrefetcher.__call__
    known: WeakKeyDictionary[Any, WatchedLoader] = WeakKeyDictionary()

    def watched(self: Any, batches: Iterator[Any]) -> Iterator[Any]:
        if self not in known:
            known[self] = WatchedLoader(None, place=-1)
            hooks.loaders.append(known[self])
        found = known[self]
        hooks.begin_epoch(found)
        return fetch(self, _Watched(hooks, found, batches))

    DevicePrefetcher.__call__ = watched  # type: ignore[method-assign]


class _Watched:
    """The batches of an epoch. Those of a DataLoader, which is watched itself, are left to that."""

    def __init__(self, hooks: LoaderHooks, watched: WatchedLoader, batches: Iterator[Any]) -> None:
        self.hooks, self.watched, self.batches = hooks, watched, iter(batches)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        before = self.hooks.meters.batches
        with record_function(f"{LOADER}#brim"):
            return self.hooks.next_of_feed(self.watched, lambda: next(self.batches), before)
