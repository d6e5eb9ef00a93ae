"""What a data set changes of itself while worker processes read it: only they have it, and it ends with them."""

from brim.data import Loader
from brim.data.feed import Feed
from brim.data.probing.dry_run import WritesFiles, dry_run
from brim.data.reading.dataset_probe import quick_probe
from brim.data.reading.one_batch import BatchReader
from brim.engine.run_state.sample_order import is_last_position
from brim.engine.run_state.unsaved_state import SHOWN, UnsavedState
from brim.errors import some_of


def remark_on_workers(feed: Feed, position: int) -> str | None:
    """What to tell where a run goes on within an epoch whose samples come from workers that kept state of their own.

    Only workers that were asked for: brim itself takes none for a data set that reading changes.
    """
    if not isinstance(feed, Loader) or not feed.request.workers or feed.samples is None:
        return None
    if position == 0 or is_last_position(feed, position):
        return None
    samples = feed.samples

    def changed(reader: BatchReader) -> list[str]:
        state = UnsavedState([reader.dataset, reader.collate])
        state.begin()
        quick_probe(reader, samples)
        return list(state.take())

    try:
        names = dry_run(changed, BatchReader(feed.data, feed.request.collate))
    except WritesFiles:
        return None
    if not names:
        return None
    return (
        f"{some_of(names, SHOWN)}: changed by reading, in each worker process for itself, and lost with these: the "
        "rest of the epoch reads other samples than without the stop; draw from torch, random or numpy.random, or "
        "resume from the end of an epoch (checkpoint_every=None)"
    )
