"""The loader inside of one that Accelerate has prepared: the place where batches can be timed, seen and copied ahead.

Accelerate's own loader reads one batch ahead to know which is the last, and gradient accumulation follows what it
knows. A prefetcher around it would read further ahead still, and the last steps of an epoch would be others. Inside,
nothing is read earlier than before: the copy of the batch that is read ahead runs while the one before is computed.
"""

import sys
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from brim.data import DevicePrefetcher
from brim.data.garbage import gc_safe_forks
from brim.errors import ConfigError

PLAIN = "around a plain DataLoader use brim.DevicePrefetcher(device)(iter(loader))"
OTHERWISE = {
    "DataLoaderDispatcher": "streams become one with dispatch_batches=False in the data loader's configuration"
}


class BatchClock(Protocol):
    """Hears when the loop waits for a batch."""

    def asks_for_batch(self) -> None: ...

    def got_batch(self) -> float: ...


class InnerLoader:
    """Hands out the batches of ``loader``; all else about it is as if it were that loader."""

    def __init__(
        self,
        loader: Any,
        prefetcher: DevicePrefetcher | None = None,
        clock: BatchClock | None = None,
        on_first: Callable[[Any], None] | None = None,
    ) -> None:
        self.inner, self.prefetcher, self.clock, self.on_first = loader, prefetcher, clock, on_first

    def __iter__(self) -> Iterator[Any]:
        if self.clock is not None:
            self.clock.asks_for_batch()  # workers are started here
        with gc_safe_forks():
            batches = iter(self.inner)
        if self.prefetcher is not None:
            batches = self.prefetcher(batches)
        return self._timed(batches)

    def _timed(self, batches: Iterator[Any]) -> Iterator[Any]:
        is_asked = True  # for the first one, above
        while True:
            if self.clock is not None and not is_asked:
                self.clock.asks_for_batch()
            try:
                batch = next(batches)
            except StopIteration:
                return
            if self.clock is not None:
                self.clock.got_batch()
            is_asked = False
            if self.on_first is not None:
                first, self.on_first = self.on_first, None
                first(batch)
            yield batch
            del batch  # the loop has it, and nobody else should keep its memory

    def __len__(self) -> int:
        return len(self.inner)

    def __getattr__(self, name: str) -> Any:
        if name == "inner":  # before it is set, as where a copy is made
            raise AttributeError(name)
        return getattr(self.inner, name)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """As Accelerate's own loader does it: code asks whether it is a DataLoader."""
        return self.inner.__class__


def check_shard(loader: Any, what: str) -> None:
    """Refuse a loader that Accelerate has not prepared, or has prepared in another way."""
    if not is_shard(loader):
        raise ConfigError(
            f"{what} takes a DataLoaderShard, as accelerator.prepare(loader) returns it, and this is a "
            f"{type(loader).__name__}; {OTHERWISE.get(type(loader).__name__, PLAIN)}"
        )
    if loader.use_stateful_dataloader:
        raise ConfigError(
            f"{what} does not take a stateful loader, whose position it would not tell; prepare it with "
            "use_stateful_dataloader=False"
        )


def is_shard(loader: Any) -> bool:
    """Whether it reads the batches of this process alone."""
    return _is_accelerates(loader, "DataLoaderShard")


def is_prepared(loader: Any) -> bool:
    """Whether there is a loader inside: so it is with those that the first process reads for all, too."""
    return is_shard(loader) or _is_accelerates(loader, "DataLoaderDispatcher")


def _is_accelerates(loader: Any, kind: str) -> bool:
    library = sys.modules.get("accelerate.data_loader")  # where it was never imported, nothing was prepared
    return library is not None and isinstance(loader, getattr(library, kind))


def prefetch(loader: Any) -> Any:
    """Let batches be copied to the GPU from page-locked memory on a stream of their own, while the GPU computes.

    Args:
        loader: what ``accelerator.prepare(loader)`` returned; it is changed in place. Batches, their order and what
            Accelerate knows of the last one stay the same. On a CPU nothing changes.

    Returns:
        The same loader.

    Raises:
        ConfigError: for a loader of another kind: not prepared, dispatched from the first process, stateful, or
            prepared with ``device_placement=False``.

    >>> loader = prefetch(accelerator.prepare(loader))  # doctest: +SKIP
    """
    check_shard(loader, "prefetch")
    if loader.device is None:
        raise ConfigError("prefetch: this loader was prepared with device_placement=False, so its batches stay here")
    if not isinstance(inner_of(loader), InnerLoader):
        loader.base_dataloader = InnerLoader(loader.base_dataloader, prefetcher_for(loader))
    return loader


def prefetcher_for(loader: Any) -> DevicePrefetcher:
    """None ahead: Accelerate asks for the next batch before the one before it is computed."""
    return DevicePrefetcher(loader.device, ahead=0)


def inner_of(loader: Any) -> Any:
    """What is inside, by its real kind: ``isinstance`` asks ``__class__`` too."""
    inner = loader.base_dataloader
    return inner if type(inner) is InnerLoader else None
