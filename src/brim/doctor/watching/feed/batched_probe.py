"""What a batch costs by one index, tried on the script's own data set before anybody advises it."""

import time
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import IterableDataset, default_collate

from brim.doctor.cures.batched_columns import is_of_columns, rows
from brim.doctor.cures.indexed_data import gives_whole_batches, indexed_batch

ROUNDS = 5
FEWEST = 16  # samples of a batch


def batched_seconds(epoch: Any, samples: int) -> float | None:
    """Seconds for so many samples by one index; None where the data set does not give the same batch that way.

    Args:
        epoch: A DataLoader's iterator, which lives while the script takes its batches: the DataLoader itself may not.
        samples: As many as a batch has.
    """
    dataset: Any = epoch._dataset
    if isinstance(dataset, IterableDataset) or not epoch._auto_collation or samples < FEWEST:
        return None
    if epoch._collate_fn is not default_collate:
        return None
    try:
        indices = torch.randint(0, len(dataset), (samples,)).tolist()
        if is_of_columns(dataset):
            return min(_timed(lambda: rows(dataset, indices)) for _ in range(ROUNDS))
        if not gives_whole_batches(dataset, indices):
            return None
        like = default_collate([dataset[indices[0]]])
        return min(_timed(lambda: indexed_batch(dataset, indices, like)) for _ in range(ROUNDS))
    except Exception:  # whatever a user's data set says of being asked out of turn
        return None


def _timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
