"""Where the training data is kept while a run lasts."""

import torch

from brim.data import Feed, Loader
from brim.data.feed import ReadyBatches
from brim.engine.distributed.rank_identity import RankIdentity
from brim.record import Journal


class DataPlace:
    """Says how the data is read, and keeps it on the device where it consists of columns and there is room."""

    def __init__(self, feed: Feed, device: torch.device, journal: Journal, ranks: RankIdentity) -> None:
        self.feed = feed
        self.device = device
        self.journal = journal
        self.ranks = ranks

    def choose_path(self, awaits_forecast: bool) -> None:
        """Choose how the data is read. What can be kept on a GPU goes there when the forecast says what is left."""
        if not isinstance(self.feed, Loader):
            if isinstance(self.feed, ReadyBatches):
                self.journal.say(self.feed.sentence(), "data", path="ready batches", workers=0)
            return
        self.feed.report = lambda sentence: self.journal.say(sentence, "data")
        self.feed.compute_on(self.device, self.ranks.world, self.ranks.local_world)
        if self.device.type == "cuda" and not awaits_forecast:
            self.keep_on_device()
        choice = self.feed.choice
        self.journal.say(choice.sentence(), "data", path=choice.path, workers=choice.workers)

    def keep_on_device(self, room: int | None = None) -> int:
        """Keep the data on the GPU if it fits into ``room``: without a forecast, into a quarter of what is free.

        Returns the bytes that it takes there, with the blocks in which its rows are gathered.
        """
        before = self._allocated()
        room = torch.cuda.mem_get_info(self.device)[0] // 4 if room is None else room
        if isinstance(self.feed, Loader) and self.feed.place(self.device, room):
            choice = self.feed.choice
            self.journal.say(choice.sentence(), "data", path=choice.path, workers=0)
            return max(0, self._allocated() - before) + self.feed.block_bytes
        return 0

    def _allocated(self) -> int:
        return torch.cuda.memory_allocated(self.device) if self.device.type == "cuda" else 0
