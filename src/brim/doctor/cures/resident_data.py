"""Columns of a data set that lie on the device: batches are gathered there, and the script finds nothing to copy.

Which columns a script copies, and whereto, is learnt from its first batches, which it gets on the CPU. From then on it
gets the same values in the same order, on that device. A script that needs a batch on the CPU after all fails, and is
not cured in this way.
"""

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from brim.doctor.batch_contents import tensors_of
from brim.doctor.cures.batch_moves import BatchMoves

AFTER = 4  # batches: then the step has taken the memory that it takes
PART = 0.25  # of the memory that is free on the device


class ResidentColumns:
    """Holds the columns of data sets where the script wants their batches.

    Args:
        moves: What the script copies.
        free_bytes: How much memory is free on a device; for tests.
    """

    def __init__(self, moves: BatchMoves, free_bytes: Callable[[torch.device], int] | None = None) -> None:
        self._moves = moves
        self._free_bytes = free_bytes or _free_bytes
        self.held: dict[int, tuple[Any, Any]] = {}  # by data set: which state of it, and its columns
        self._batches: dict[int, int] = {}

    def batch(self, feed: int, state: Any, size: Callable[[], int], read: Callable[[], Any], places: list[int]) -> Any:
        """The samples at some places, gathered on the device; None where columns are not held there.

        Args:
            feed: The data set, by its id.
            state: By what it is known that the columns are still the same.
            size: Returns the bytes of all columns.
            read: Returns all columns, nested as a batch is; None where they cannot be had.
            places: Of the samples.
        """
        devices = self._moves.devices(feed)
        self._batches[feed] = 1 + self._batches.get(feed, 0)
        if not devices or self._batches[feed] <= AFTER:
            return None
        state = (state, tuple(devices.items()))
        if feed not in self.held or self.held[feed][0] != state:
            self.held.pop(feed, None)  # before the next ones are read
            self.held[feed] = (state, self._moved_if_they_fit(size(), read, devices))
        columns = self.held[feed][1]
        return None if columns is None else _gathered(columns, torch.tensor(places))

    def _moved_if_they_fit(self, size: int, read: Callable[[], Any], devices: dict[int, torch.device]) -> Any:
        if any(size > PART * self._free_bytes(device) for device in set(devices.values())):
            return None
        columns = read()
        return None if columns is None else moved(columns, devices)


def bytes_in_batch(batch: Any) -> int:
    """The bytes of all tensors in a batch."""
    return sum(tensor.nbytes for tensor in tensors_of(batch))


def moved(columns: Any, devices: dict[int, torch.device]) -> Any:
    """Columns with those on a device that the script copies there."""
    numbers = itertools.count()

    def move(column: Tensor) -> Tensor:
        device = devices.get(next(numbers))
        return column if device is None else column.to(device)

    return with_tensors(columns, move)


def _gathered(columns: Any, places: Tensor) -> Any:
    """A batch of the rows at some places, each column on its device."""
    indices = {torch.device("cpu"): places}

    def gather(column: Tensor) -> Tensor:
        if column.device not in indices:
            # From page-locked memory, so that the host does not wait for what the device computes.
            indices[column.device] = places.pin_memory().to(column.device, non_blocking=True)
        return column[indices[column.device]]

    return with_tensors(columns, gather)


def with_tensors(batch: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """A batch in the containers that collating gives, with other tensors."""
    if isinstance(batch, Tensor):
        return change(batch)
    if isinstance(batch, dict):
        return {key: with_tensors(value, change) for key, value in batch.items()}
    return type(batch)(with_tensors(value, change) for value in batch)


def _free_bytes(device: torch.device) -> int:
    free, _ = torch.cuda.mem_get_info(device)
    return free
