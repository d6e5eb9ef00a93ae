"""Batches in an order of the user's: whether a resumed run reads the epoch that it was in, and not another one.

A sampler may draw from a generator of its own, whose state goes on from epoch to epoch, or count epochs by itself. The
states of such generators at the beginning of the epoch are kept. Whatever else decides the order shows in the first
batch: one of other samples than when the epoch was begun is refused, for a position in it would be none in this epoch.
"""

from collections.abc import Iterator
from itertools import chain
from typing import Any

from brim.data import Batch, Feed, Loader
from brim.data.feed import OWNERS, ReadyBatches, attribute_at, skip_samples
from brim.data.randomness.generators import GENERATORS, plain_state, set_plain_state
from brim.engine.distributed.same_batches import marks_of, tell_apart
from brim.engine.run_state.progress import Progress
from brim.errors import RunFolderError

_END = object()


class UserOrder:
    """The batches of ``feed``, whose order is the user's, with what a resumed run has to know of it in ``progress``."""

    def __init__(self, feed: ReadyBatches, progress: Progress, generators: dict[str, Any]) -> None:
        self.feed = feed
        self.progress = progress
        self.generators = generators  # states at the beginning of the epoch, for the checkpoint

    def batches(self, seed: int, epoch: int, start: int = 0) -> Iterator[Batch]:
        if start == 0:
            self.generators.clear()
            self.generators.update(order_states(self.feed))
        batches = self.feed.batches(seed, epoch)
        first = next(batches, _END)
        if first is _END:
            return iter(())
        marks = marks_of(first)
        if start == 0:
            self.progress.first_batch = marks
        elif self.progress.first_batch is not None and tell_apart(self.progress.first_batch, marks):
            raise RunFolderError(
                f"the run stands after sample {start:,} of an epoch that train_data does not begin as it did: its "
                "sampler draws or counts by itself; give it a seed and set_epoch(epoch), or resume from the end of an "
                "epoch (checkpoint_every=None)"
            )
        return skip_samples(chain([first], batches), start)

    def in_order(self) -> Iterator[Batch]:
        return self.feed.in_order()


def order_states(feed: Feed) -> dict[str, Any]:
    """The states of generators that samplers and data sets of ``feed`` keep, by where they do."""
    return {name: plain_state(generator) for name, generator in order_generators(feed)}


def restore_order(feed: Feed, states: dict[str, Any]) -> None:
    """Let them draw again what they drew then."""
    for name, generator in order_generators(feed):
        if name in states:
            set_plain_state(generator, states[name])


def order_generators(feed: Feed) -> Iterator[tuple[str, Any]]:
    """Those that :func:`restore_order` puts back, and where they are."""
    return iter(()) if isinstance(feed, Loader) else generators_of(getattr(feed, "source", None))


def generators_of(source: Any) -> Iterator[tuple[str, Any]]:
    """The generators that a loader of the user's, its samplers and its data set keep, and where they do."""
    seen = set()
    for place in OWNERS:
        for name, value in getattr(attribute_at(source, place), "__dict__", {}).items():
            known = isinstance(value, GENERATORS)
            if known and id(value) not in seen:
                seen.add(id(value))
                yield f"{place}.{name}", value
