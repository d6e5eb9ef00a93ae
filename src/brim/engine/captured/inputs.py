"""Where a graph reads its batch: memory that stays where it is, filled before each replay or once for many.

A graph is for windows of one shape: :func:`read_window` gives the tensors of a window, and the key of its shape.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from brim.data import Batch
from brim.data.batches.batch import children, is_container, leaves_of, map_leaves
from brim.engine.captured.report import Refusal
from brim.engine.splitting.few_samples import clone
from brim.errors import a_type

PLAIN = (int, float, bool, str, bytes, type(None))
MOST_BLOCK_BYTES = 64 << 20
MOST_BATCHES = 256
_TENSOR = object()
Key = tuple[Any, ...]


def read_window(window: Sequence[Batch]) -> tuple[list[Tensor], Key]:
    """The tensors, in order, and a key: windows with the same key are computed by the same kernels."""
    tensors: list[Tensor] = []
    key: list[Any] = []
    _read(window, tensors, key)
    return tensors, tuple(key)


def _read(part: Any, tensors: list[Tensor], key: list[Any]) -> None:
    if isinstance(part, Tensor):
        tensors.append(part)
        key.append(part.shape)
        key.append(part.dtype)
    elif isinstance(part, tuple | list):
        key.append((type(part), len(part)))
        for item in part:
            _read(item, tensors, key)
    elif is_container(part):
        key.append((type(part), *part) if isinstance(part, Mapping) else type(part))
        for item in children(part):
            _read(item, tensors, key)
    elif type(part) in PLAIN:
        key.append(part)
    else:
        key.append(id(part))  # a stranger is a new one each time, and so never captured


def check_window(window: Sequence[Batch]) -> None:
    """Refuse batches whose content a graph would take for fixed."""
    for leaf in [leaf for batch in window for leaf in leaves_of(batch)]:
        if isinstance(leaf, Tensor):
            if not leaf.is_cuda:
                raise Refusal("a batch has a tensor that is not on the GPU")
            if leaf.is_sparse or leaf.is_nested:
                raise Refusal("a batch has a sparse or nested tensor")
        elif type(leaf) not in PLAIN:
            raise Refusal(f"a batch holds {a_type(leaf)}, which a graph cannot be fed with")


def own_copy(window: Sequence[Batch]) -> list[Batch]:
    """The same batches in memory that nothing else writes to."""
    return [clone(batch) for batch in window]


def alike_copy(window: Sequence[Batch]) -> list[Batch]:
    """The same, in which a tensor that is there twice (labels that are the inputs) is one tensor as well."""
    copies: dict[int, Tensor] = {}

    def copied(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        if id(leaf) not in copies:
            copies[id(leaf)] = leaf.detach().clone()
        return copies[id(leaf)]

    return [map_leaves(copied, batch) for batch in window]


class Cursor:
    """Where a graph reads and writes next, on the device: the rows of its batch in a block, and the slot of its loss.

    One tensor, so that one kernel moves all of it on. The host keeps count, and only steps in to go somewhere else.
    """

    def __init__(self, length: int, device: torch.device) -> None:
        self._places = torch.zeros(length + 1, dtype=torch.int64, device=device)
        self._strides = torch.tensor([length] * length + [1], device=device)
        self._numbers = torch.arange(length, device=device)
        self.rows, self.slot = self._places[:-1], self._places[-1:]
        self.row = 0  # what the first of the rows is on the device
        self.go_to(0)

    def go_to(self, row: int) -> None:
        torch.add(self._numbers, row, out=self.rows)
        self.row = row

    def advance(self) -> None:
        """Move on to the next batch; called within the graph, after the step."""
        self._places.add_(self._strides)


class CopiedInputs:
    """Every batch is copied in before its replay."""

    def __init__(self, window: Sequence[Batch]) -> None:
        self._window = own_copy(window)
        self._tensors = read_window(self._window)[0]
        self.cursor = Cursor(0, self._tensors[0].device)

    def fill(self, tensors: list[Tensor]) -> None:
        torch._foreach_copy_(self._tensors, tensors)

    def poison(self) -> None:
        """Overwrite the last batch, so that a batch that is not filled in shows."""
        for tensor in self._tensors:
            tensor.zero_()

    def window(self) -> list[Batch]:
        """The batches, for the step; in containers that it may take something out of."""
        return [map_leaves(lambda leaf: leaf, batch) for batch in self._window]


class BlockInputs:
    """Batches that are handed out as rows of a block, one after the other: the block is copied in once.

    The graph picks its rows by numbers on the device and moves these on by itself, so that most replays need nothing
    from the host.
    """

    def __init__(self, window: Sequence[Batch]) -> None:
        tensors = read_window(window)[0]
        self._layout = map_leaves(lambda leaf: _TENSOR if isinstance(leaf, Tensor) else leaf, window[0])
        self._length = length = len(tensors[0])
        row_bytes = sum(tensor.numel() * tensor.element_size() for tensor in tensors) // length
        rows = max(length, min(MOST_BATCHES * length, MOST_BLOCK_BYTES // max(1, row_bytes)))
        self._blocks = [torch.empty((rows, *t.shape[1:]), dtype=t.dtype, device=t.device) for t in tensors]
        self.cursor = Cursor(length, tensors[0].device)
        self._sources: list[Tensor] = []  # what the blocks are copies of, from row _first on
        self._first = self._copied = 0

    @staticmethod
    def suit(window: Sequence[Batch]) -> bool:
        """Whether these batches are rows of blocks."""
        return len(window) == 1 and _rows_of_blocks(read_window(window)[0]) is not None

    def fill(self, tensors: list[Tensor]) -> None:
        source, row = tensors[0]._base, -1
        if self._sources and source is self._sources[0] and self._go_together(tensors):
            row = tensors[0].storage_offset() // source.stride(0) - self._first
        if row < 0 or row + self._length > self._copied:
            self._copy(tensors)
        elif row != self.cursor.row:
            self.cursor.go_to(row)
        self.cursor.row += self._length  # as the graph does

    def poison(self) -> None:
        """Leave nothing of the last batch, unless the next ones are meant to be in the block already."""
        if not self._sources:
            for block in self._blocks:
                block.zero_()

    def _go_together(self, tensors: list[Tensor]) -> bool:
        """Whether all are the same rows of the blocks that were copied in."""
        if len(tensors) == 1:
            return True
        row = tensors[0].storage_offset() // self._sources[0].stride(0)
        return all(
            t._base is source and t.storage_offset() == row * source.stride(0)
            for t, source in zip(tensors[1:], self._sources[1:], strict=True)
        )

    def _copy(self, tensors: list[Tensor]) -> None:
        """Copy in as much as there is room for, from the first row of this batch on."""
        found = _rows_of_blocks(tensors)
        sources, self._first = found or (tensors, 0)  # else a batch by itself
        self._sources = sources if found else []
        self._copied = min(len(self._blocks[0]), len(sources[0]) - self._first)
        parts = [source[self._first : self._first + self._copied] for source in sources]
        torch._foreach_copy_([block[: self._copied] for block in self._blocks], parts)
        self.cursor.go_to(0)

    def window(self) -> list[Batch]:
        picked = iter([block.index_select(0, self.cursor.rows) for block in self._blocks])
        return [map_leaves(lambda leaf: next(picked) if leaf is _TENSOR else leaf, self._layout)]


def _rows_of_blocks(tensors: list[Tensor]) -> tuple[list[Tensor], int] | None:
    """The blocks that these tensors are rows of, and the first row; None where they are not, or not alike."""
    blocks: list[Tensor] = []
    firsts: set[int] = set()
    for tensor in tensors:
        block = tensor._base
        if block is None or tensor.dim() == 0 or tensor.shape[1:] != block.shape[1:]:
            return None
        if tensor.stride() != block.stride() or not block.is_contiguous() or block.storage_offset() != 0:
            return None
        if tensor.dtype != block.dtype or tensor.is_conj() or tensor.is_neg():  # the bits, read as something else
            return None
        if block.numel() == 0 or tensor.storage_offset() % block.stride(0):
            return None
        blocks.append(block)
        firsts.add(tensor.storage_offset() // block.stride(0))
    alike = len(firsts) == 1 and len({len(block) for block in blocks}) == 1 and len({len(t) for t in tensors}) == 1
    return (blocks, firsts.pop()) if alike else None


class LossRing:
    """The losses of the last replays, kept by the graph itself: the host asks for none until it logs."""

    def __init__(self, size: int, loss: Tensor, cursor: Cursor) -> None:
        self._losses = torch.zeros(size, dtype=loss.dtype, device=loss.device)
        self._views = list(self._losses.unbind())
        self._slot = cursor.slot
        self._next = len(self._views)
        self.before_replay()

    def keep(self, loss: Tensor) -> None:
        """Record the loss of this step; called within the graph."""
        self._losses.scatter_(0, self._slot, loss.reshape(1))

    def poison(self) -> None:
        """A loss that is not written shows."""
        self._losses.fill_(math.nan)

    def before_replay(self) -> None:
        """Begin anew where the ring is full."""
        if self._next == len(self._views):
            self._slot.zero_()
            self._next = 0

    def take(self) -> Tensor:
        """The loss of the replay that was just started."""
        loss = self._views[self._next]
        self._next += 1
        return loss
