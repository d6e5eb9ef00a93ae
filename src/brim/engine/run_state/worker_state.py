"""What a data set changes of itself while worker processes or ranks read it, each with a data set of its own."""

from brim.data import Loader
from brim.data.feed import Feed
from brim.data.probing.dry_run import WouldWriteFiles, dry_run
from brim.data.reading.dataset_probe import quick_probe
from brim.data.reading.one_batch import BatchReader
from brim.engine.run_state.sample_order import is_last_position
from brim.engine.run_state.unsaved_state import SHOWN, UnsavedState
from brim.errors import some_of

INSTEAD = "draw from torch, random or numpy.random"


def remark_on_workers(feed: Feed, position: int) -> str | None:
    """What to tell where a run goes on within an epoch whose samples come from workers that kept state of their own.

    Only workers that were asked for: brim itself takes none for a data set that reading changes.
    """
    if not isinstance(feed, Loader) or not feed.request.workers:
        return None
    if position == 0 or is_last_position(feed, position) or not (names := _changed_by_reading(feed)):
        return None
    return (
        f"{names}: changed by reading, in each worker process for itself, and lost with these: the rest of the epoch "
        f"reads other samples than without the stop; {INSTEAD}, or resume from the end of an epoch "
        "(checkpoint_every=None)"
    )


def remark_on_shares(feed: Feed) -> str | None:
    """What to tell where several ranks read their shares of a data set that reading changes."""
    if not isinstance(feed, Loader) or not (names := _changed_by_reading(feed)):
        return None
    return (
        f"{names}: changed by reading, which each rank does to a data set of its own and with its share of samples: "
        f"these are others than on one rank, and a generator draws the same on all of them; {INSTEAD}, of which each "
        "rank draws others"
    )


def _changed_by_reading(feed: Loader) -> str:
    """The names of what reading a few samples changes, in a process of its own; caches and open files are not told."""
    if feed.samples is None:
        return ""
    samples = feed.samples

    def changed(reader: BatchReader) -> list[str]:
        state = UnsavedState([reader.dataset, reader.collate])
        state.begin()
        quick_probe(reader, samples)
        return list(state.take())

    try:
        names = dry_run(changed, BatchReader(feed.data, feed.request.collate))
    except WouldWriteFiles:
        return ""
    return some_of(names, SHOWN) if names else ""
