"""From stored samples to tensors on the device."""

from brim.data.batch import Batch, batch_length, slice_batch
from brim.data.feed import Feed, as_feed, batches_per_epoch
from brim.data.loader import Loader
from brim.data.move import move_data_to_device
from brim.data.negatives import NegativeSampler

__all__ = [
    "Batch",
    "Feed",
    "Loader",
    "NegativeSampler",
    "as_feed",
    "batch_length",
    "batches_per_epoch",
    "move_data_to_device",
    "slice_batch",
]
