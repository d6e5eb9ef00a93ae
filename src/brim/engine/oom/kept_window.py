"""The batches of a step, kept as they came: users' code may change them while it computes.

A model that normalises its input in place, or a loss that takes the labels out of the dict (``batch.pop("labels")``),
would find a changed batch when the step is tried again, or when another micro-batch is cut from it.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from brim.data import Batch
from brim.data.batches.batch import is_container, map_leaves, named_tensors

WATCHED_STEPS = 2  # in which it shows whether tensors are written to


class KeptWindow:
    """What was handed over, for one step after the other.

    Containers are made anew for each use. Tensors are watched by their version; copies of them are made in the first
    steps (on the host: nobody has reckoned with them on the device), and from then on where these have shown that they
    are written to.
    """

    def __init__(self) -> None:
        self.is_written_to = False
        self._window: Sequence[Batch] = ()
        self._is_plain = False  # nothing in it but tuples of tensors, which are nobody's to change
        self._tensors: Sequence[Tensor] = ()
        self._versions: list[int] = []
        self._copies: list[Tensor] | None = None
        self._steps = 0

    def keep(self, window: Sequence[Batch], copies: bool = True) -> None:
        """Another step begins, with these batches. Without ``copies`` it shows at least whether they were changed."""
        self._window, self._copies = window, None
        first = window[0] if len(window) == 1 else None
        # Most batches, in every step: spared the walk.
        self._is_plain = type(first) is tuple and all(type(part) is Tensor for part in first)
        self._tensors = first if self._is_plain and first is not None else _tensors_of(window)
        try:
            self._versions = [tensor._version for tensor in self._tensors]
        except RuntimeError:  # made in inference mode, where nothing is counted
            self._tensors = [tensor for tensor in self._tensors if not tensor.is_inference()]
            self._versions = [tensor._version for tensor in self._tensors]
        if self._steps < WATCHED_STEPS or self.is_written_to:
            self._steps += 1
            self._copies = self._copied() if copies else None

    def _copied(self) -> list[Tensor]:
        return [
            tensor.detach().clone() if self.is_written_to else tensor.detach().to("cpu", copy=True)
            for tensor in self._tensors
        ]

    def lend(self) -> Sequence[Batch]:
        """The batches, in containers of their own."""
        return self._window if self._is_plain else [lent(batch) for batch in self._window]

    def is_changed(self) -> bool:
        """Whether a tensor was written to since."""
        return [tensor._version for tensor in self._tensors] != self._versions

    def _differs(self) -> bool:
        """Whether the numbers are others, though nothing was counted as a change (``.data``, ``.numpy()``)."""
        pairs = zip(self._tensors, self._copies or (), strict=False)
        return any(not _is_equal(tensor.detach().to(copied.device), copied) for tensor, copied in pairs)

    def restore(self) -> bool:
        """Make the tensors what they were; False where they were written to and there is no copy."""
        if not self.is_changed() and not self._differs():
            return True
        self.is_written_to = True
        if self._copies is None:
            return False
        with torch.no_grad():
            for tensor, copied in zip(self._tensors, self._copies, strict=True):
                tensor.detach().copy_(copied)
        self._versions = [tensor._version for tensor in self._tensors]
        return True

    def forget(self) -> None:
        """Hold nothing of the step that is over; the first ones show whether batches are written to."""
        if self._copies is not None and not self.is_written_to:
            self.is_written_to = self.is_changed() or self._differs()
        self._window, self._tensors, self._copies = (), (), None


def lent(batch: Batch) -> Batch:
    """The same tensors in a container that nobody else holds; a tuple of tensors is nobody's to change."""
    if isinstance(batch, Tensor) or (type(batch) is tuple and not any(map(is_container, batch))):
        return batch
    return map_leaves(lambda leaf: leaf, batch)


def _is_equal(one: Tensor, other: Tensor) -> bool:
    parts = _dense_parts(one), _dense_parts(other)
    return len(parts[0]) == len(parts[1]) and all(map(torch.equal, *parts))


def _dense_parts(tensor: Tensor) -> Sequence[Tensor]:
    """What a tensor is made of: ``torch.equal`` knows neither nested nor sparse ones."""
    if tensor.is_nested:
        return tensor.unbind()
    if tensor.layout is torch.strided:
        return (tensor,)
    if tensor.layout is torch.sparse_coo:
        return tensor._indices(), tensor._values()
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return tensor.crow_indices(), tensor.col_indices(), tensor.values()
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return tensor.ccol_indices(), tensor.row_indices(), tensor.values()
    return (tensor.to_dense(),)


def _tensors_of(window: Sequence[Batch]) -> list[Tensor]:
    return [tensor for batch in window for _, tensor in named_tensors(batch)]
