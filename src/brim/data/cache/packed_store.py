"""Samples of any nesting in memory-mapped files: one file of raw bytes for each leaf, and a header of JSON.

File names follow from the layouts' and leaves' numbers, never from the header, and each file's size must be the one
that the header implies: a header that was damaged, or written by somebody else, opens nothing and runs nothing.
"""

import json
import math
import mmap
import os
import stat
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brim.data.cache.packed_sample import TORCH_DTYPES, Leaf, children_of, layout_leaves
from brim.data.cache.packed_writer import FORMAT, HEADER, data_file
from brim.errors import DataError

MOST_HEADER_BYTES = 64 << 20
# Pages are private: what somebody writes into a column by mistake stays in their process. Without NORESERVE Linux
# would count the file as memory that may be needed, and refuse to map one that is larger than the memory.
NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000) if sys.platform == "linux" else 0

UNREADABLE = (KeyError, TypeError, ValueError, AttributeError, OverflowError, RuntimeError)


class Damaged(DataError):
    """Files that are not what a writer left."""


@dataclass(frozen=True)
class Column:
    """The values of one leaf: ``data`` has a row for each sample, or is flat, with offsets and shapes beside it."""

    leaf: Leaf
    data: Tensor
    offsets: Any = None  # numpy arrays: reading one number of a tensor takes ten times as long
    shapes: Any = None

    @property
    def is_fixed(self) -> bool:
        return self.offsets is None

    @property
    def is_sequence(self) -> bool:
        return " of " in self.leaf.kind

    def row(self, row: int) -> Tensor:
        """One sample's values, as a view."""
        if self.offsets is None:
            return self.data[row]
        start, stop = int(self.offsets[row]), int(self.offsets[row + 1])
        return self.data[start:stop].view(self.shapes[row].tolist())


@dataclass(frozen=True)
class Layout:
    """The samples that have the same containers and types."""

    tree: Any
    columns: list[Column]
    rows: int


class PackedStore:
    """What a :class:`PackedWriter` wrote, by sample and by batch.

    ``classes`` holds the named tuples that samples consist of, by the names in the layouts: the files cannot.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.classes: dict[str, type] = {}
        try:
            self._open(_read_header(folder))
        except FileNotFoundError as error:
            raise Damaged(f"{Path(error.filename or '').name} is missing") from error
        except OSError as error:
            raise Damaged(f"{Path(error.filename or '').name} cannot be read: {error.strerror}") from error
        except UNREADABLE as error:
            raise Damaged("its header cannot be read") from error

    def _open(self, header: dict[str, Any]) -> None:
        if _count(header["format"]) != FORMAT:
            raise Damaged(f"its format is {header['format']!r:.20}")
        self.header = header
        self.samples = _count(header["samples"])
        self.layouts = [
            _open_layout(self.folder, number, layout) for number, layout in enumerate(_list(header["layouts"]))
        ]
        if sum(layout.rows for layout in self.layouts) != self.samples:
            raise Damaged("its layouts do not add up to its samples")
        self._which: Any = None
        self._rows: Any = None
        if len(self.layouts) != 1:
            self._which, self._rows = self._open_positions()
        self._readers: list[Callable[[int], Any]] = []

    def _open_positions(self) -> tuple[Any, Any]:
        which = _map(self.folder / "layouts", torch.int32, self.samples).numpy()
        rows = _map(self.folder / "rows", torch.int64, self.samples).numpy()
        ends = np.array([layout.rows for layout in self.layouts], dtype=np.int64)
        if self.samples and not (which.min() >= 0 and which.max() < len(ends)):
            raise Damaged("a sample has no layout")
        if not bool(((rows >= 0) & (rows < ends[which])).all()):
            raise Damaged("a sample lies outside its layout")
        return which, rows

    def firsts_with_classes(self) -> list[int]:
        """The first sample of each layout that has named tuples."""
        numbers = [number for number, layout in enumerate(self.layouts) if class_names(layout.tree)]
        if self._which is None:
            return [0 for _ in numbers]
        return [int(np.argmax(self._which == number)) for number in numbers]

    def sample(self, index: int) -> Any:
        """Sample ``index``, 0 to ``samples`` - 1; tensors are copies."""
        if not self._readers:
            self._readers = [_reader(layout.tree, iter(layout.columns), self.classes) for layout in self.layouts]
        if self._which is None:
            return self._readers[0](index)
        return self._readers[self._which[index]](int(self._rows[index]))

    @property
    def stacks(self) -> bool:
        """Whether torch's default collate can make a batch of the samples, of tensors alone."""
        if len(self.layouts) != 1:
            return False
        return all(column.is_fixed and column.leaf.stacks for column in self.layouts[0].columns)

    def columns(self) -> Any:
        """The whole store as one collated batch of views, where it stacks."""
        layout = self.layouts[0]
        return _collated(layout.tree, iter(layout.columns), self.classes)

    def batch(self, index: Tensor) -> Any:
        """These samples as one collated batch, where the store stacks; ``index`` lies within it."""
        layout, rows = self.layouts[0], index.numpy()
        taken = [Column(column.leaf, _take(column.data, rows)) for column in layout.columns]
        # Sequences of numbers become one tensor for each position: contiguous ones, as collate makes them.
        taken = [
            Column(one.leaf, one.data.t().clone(memory_format=torch.contiguous_format).t()) if one.is_sequence else one
            for one in taken
        ]
        return _collated(layout.tree, iter(taken), self.classes)


def class_names(tree: Any) -> dict[str, list[str]]:
    """The named tuples in a layout, with their fields."""
    if "leaf" in tree:
        return {}
    found = {str(tree["class"]): [str(field) for field in tree["fields"]]} if "named" in tree else {}
    for child in children_of(tree):
        found |= class_names(child)
    return found


def classes_in(sample: Any) -> dict[str, type]:
    """The named tuples that a sample consists of, by the names in its layout."""
    kind = type(sample)
    if kind is dict:
        values = list(sample.values())
    elif isinstance(sample, tuple | list):
        values = list(sample)
    else:
        return {}
    found = {f"{kind.__module__}:{kind.__qualname__}": kind} if hasattr(kind, "_fields") else {}
    for value in values:
        found |= classes_in(value)
    return found


def _reader(tree: Any, columns: Any, classes: dict[str, type]) -> Callable[[int], Any]:
    """A function from a row to its sample: walked through once, called for each sample."""
    if "leaf" in tree:
        return _leaf_reader(next(columns))
    parts = [_reader(child, columns, classes) for child in children_of(tree)]
    if "dict" in tree:
        pairs = list(zip(tree["keys"], parts, strict=True))
        return lambda row: {key: part(row) for key, part in pairs}
    if "named" in tree:
        kind = classes[tree["class"]]
        return lambda row: tuple.__new__(kind, [part(row) for part in parts])
    if "tuple" in tree:
        return lambda row: tuple([part(row) for part in parts])
    return lambda row: [part(row) for part in parts]


def _leaf_reader(column: Column) -> Callable[[int], Any]:
    kind, row = column.leaf.kind, column.row
    if kind == "tensor":
        return lambda index: row(index).clone()
    if kind == "none":
        return lambda index: None
    if kind in ("int", "float", "bool"):
        return lambda index: row(index).item()
    readers: dict[str, Callable[[int], Any]] = {
        "array": lambda index: row(index).numpy().copy(),
        "scalar": lambda index: row(index).numpy()[()],
        "str": lambda index: row(index).numpy().tobytes().decode("utf-8", "surrogatepass"),
        "bytes": lambda index: row(index).numpy().tobytes(),
        "bigint": lambda index: int(row(index).numpy().tobytes(), 16),
        "json": lambda index: json.loads(row(index).numpy().tobytes()),
    }
    if kind.startswith("tuple of "):
        return lambda index: tuple(row(index).tolist())
    if kind.startswith("list of "):
        return lambda index: row(index).tolist()
    return readers[kind]


def _collated(tree: Any, columns: Any, classes: dict[str, type]) -> Any:
    """What torch's default collate would make of all samples."""
    if "leaf" in tree:
        column = next(columns)
        return list(column.data.unbind(1)) if column.is_sequence else column.data
    parts = [_collated(child, columns, classes) for child in children_of(tree)]
    if "dict" in tree:
        return dict(zip(tree["keys"], parts, strict=True))
    return tuple.__new__(classes[tree["class"]], parts) if "named" in tree else parts


def _take(data: Tensor, rows: Any) -> Tensor:
    """Rows of ``data``, copied by this thread alone.

    torch shares the copying out among its threads, which gains nothing where memory is the limit, and waits for all of
    them: beside other processes on the same two cores an epoch of 0.06 s took up to 4 s.
    """
    if data.numel() == 0:
        return data[torch.from_numpy(rows)]
    numbers = data.view(len(data), -1).view(torch.uint8).numpy()
    return torch.from_numpy(numbers.take(rows, axis=0)).view(data.dtype).view(len(rows), *data.shape[1:])


def _read_header(folder: Path) -> dict[str, Any]:
    with _open_file(folder / HEADER) as file:
        if os.fstat(file.fileno()).st_size > MOST_HEADER_BYTES:
            raise Damaged("its header is too long")
        header = json.loads(file.read())
    if not isinstance(header, dict):
        raise Damaged("its header cannot be read")
    return header


def _open_layout(folder: Path, number: int, layout: Any) -> Layout:
    rows, leaves, facts = _count(layout["rows"]), layout_leaves(layout["tree"]), _list(layout["leaves"])
    pairs = enumerate(zip(leaves, facts, strict=True))
    columns = [_open_column(folder, number, position, rows, leaf, fact) for position, (leaf, fact) in pairs]
    _check_tree(layout["tree"], iter(columns))
    return Layout(layout["tree"], columns, rows)


def _check_tree(tree: Any, columns: Any) -> None:
    """That reading samples cannot fail for want of a key or a reader."""
    if "leaf" in tree:
        _leaf_reader(next(columns))
        return
    if "dict" in tree and (
        len(tree["keys"]) != len(tree["dict"]) or not all(type(key) in (str, int) for key in tree["keys"])
    ):
        raise ValueError("keys and values do not match")
    if "named" in tree and len(tree["fields"]) != len(tree["named"]):
        raise ValueError("fields and values do not match")
    for child in children_of(tree):
        _check_tree(child, columns)


def _open_column(folder: Path, layout: int, number: int, rows: int, leaf: Leaf, fact: Any) -> Column:
    dtype = TORCH_DTYPES[leaf.dtype]
    data = folder / data_file(layout, number, "data")
    if leaf.kind == "none":
        return Column(leaf, torch.empty(0))
    if fact["shape"] is not None:
        shape = [_count(length) for length in _list(fact["shape"])]
        if len(shape) != leaf.dims:
            raise ValueError("a shape of another number of dimensions")
        flat = _map(data, dtype, rows * math.prod(shape))
        return Column(leaf, flat.view(rows, *shape))
    flat = _map(data, dtype, _count(fact["length"]))
    offsets = _map(folder / data_file(layout, number, "offsets"), torch.int64, rows + 1).numpy()
    shapes = _map(folder / data_file(layout, number, "shapes"), torch.int64, rows * leaf.dims).numpy()
    table = shapes.reshape(rows, leaf.dims)
    if not (offsets[0] == 0 and offsets[-1] == len(flat) and bool((table >= 0).all())):
        raise Damaged("its offsets do not match its data")
    if not np.array_equal(np.diff(offsets), table.prod(axis=1)) or bool((np.diff(offsets) < 0).any()):
        raise Damaged("its offsets do not match its shapes")
    return Column(leaf, flat, offsets, table)


def _map(path: Path, dtype: torch.dtype, count: int) -> Tensor:
    """``count`` numbers in a file that must hold exactly these."""
    with _open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size != count * dtype.itemsize:
            raise Damaged(f"{path.name} has {size:,} bytes instead of {count * dtype.itemsize:,}")
        if count == 0:
            return torch.empty(0, dtype=dtype)
        if os.name == "nt":
            pages = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY)
        else:
            flags, rights = mmap.MAP_PRIVATE | NORESERVE, mmap.PROT_READ | mmap.PROT_WRITE
            pages = mmap.mmap(file.fileno(), size, flags=flags, prot=rights)
    return torch.frombuffer(pages, dtype=dtype)


def _open_file(path: Path) -> Any:
    """A regular file, not one that a link leads to."""
    if not stat.S_ISREG(path.lstat().st_mode):
        raise Damaged(f"{path.name} is not a file")
    return path.open("rb")


def _count(number: Any) -> int:
    if type(number) is not int or not 0 <= number < 1 << 62:
        raise ValueError(f"{number!r:.40} is not a count")
    return number


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{value!r:.40} is not a list")
    return value
