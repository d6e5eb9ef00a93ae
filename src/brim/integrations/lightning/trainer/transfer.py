"""Batches on their way to the device, in Lightning's own loop."""

from collections.abc import Iterator
from typing import Any

import torch

from brim.data import DevicePrefetcher, move_data_to_device
from brim.data.garbage import gc_safe_forks
from brim.errors import a_type
from brim.sizes import known_length


class TransfersBatches:
    """For LightningModules and data modules: batches are moved by :func:`brim.move_data_to_device`.

    Whatever they hold is moved: dicts, lists, tuples, named tuples, dataclasses at any depth, and anything with
    ``.to(device)``; asynchronously where that is safe. Name it before Lightning's class:

    >>> import torch
    >>> class Net(TransfersBatches):  # class Net(TransfersBatches, L.LightningModule)
    ...     pass
    >>> Net().transfer_batch_to_device({"x": [torch.ones(1)]}, torch.device("cpu"), 0)
    {'x': [tensor([1.])]}
    """

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        """The same batch on ``device``."""
        return move_data_to_device(batch, device)


class DeviceLoader:
    """A loader whose batches are on the device before they are asked for, copied while it computes.

    Args:
        loader: a torch DataLoader, a :class:`brim.Loader`, or anything that can be iterated once an epoch.
        device: where batches are handed out; there Lightning finds them, and copies nothing.

    >>> [int(batch.sum()) for batch in DeviceLoader([torch.ones(2), torch.ones(3)], "cpu")]
    [2, 3]
    """

    def __init__(self, loader: Any, device: str | torch.device) -> None:
        self.loader = loader
        self._prefetcher = DevicePrefetcher(device)  # one stream for all epochs

    def __iter__(self) -> Iterator[Any]:
        # A generator: Lightning also asks for an iterator to see that there is one, and the loader would draw for it.
        with gc_safe_forks():
            batches = iter(self.loader)
        yield from self._prefetcher(batches)

    def __len__(self) -> int:
        length = known_length(self.loader)
        if length is None:
            raise TypeError(f"{a_type(self.loader)} has no length")
        return length
