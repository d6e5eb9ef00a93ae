"""From stored samples to tensors on the device.

In: whatever holds samples: tensors, arrays, data sets, loaders, streams, shards. Out: batches from any position on,
the same in every way that they are read.
"""

from brim.data.batches.batch import Batch, batch_length, move_data_to_device, slice_batch
from brim.data.batches.prefetch import DevicePrefetcher
from brim.data.cache import CachedDataset, cached
from brim.data.feed import Feed, as_feed, batches_per_epoch, named_feed, position_after
from brim.data.loader import Loader
from brim.data.presets import loader_preset
from brim.data.randomness.negatives import NegativeSampler
from brim.data.tar import DamagedSample, PackSummary, Shards, pack
from brim.data.times import FeedTimes

__all__ = [
    "Batch",
    "CachedDataset",
    "DamagedSample",
    "DevicePrefetcher",
    "Feed",
    "FeedTimes",
    "Loader",
    "NegativeSampler",
    "PackSummary",
    "Shards",
    "as_feed",
    "batch_length",
    "batches_per_epoch",
    "cached",
    "loader_preset",
    "move_data_to_device",
    "named_feed",
    "pack",
    "position_after",
    "slice_batch",
]
