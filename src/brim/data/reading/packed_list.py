"""A long list of small Python objects, kept as one block of bytes.

Worker processes share the parent's memory until somebody writes to it, and Python writes to every object that it merely
looks at: its reference count. A list of a million objects is so copied into every worker, page by page (pytorch#13246).
Bytes in one block have one reference count.
"""

import copyreg
import operator
import pickle
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Any

import numpy as np

from brim.data.probing.dry_run import WouldWriteFiles, dry_run
from brim.data.randomness.seeding import seeded
from brim.data.reading.batched import same

WORTH_PACKING = 10_000  # items
COMPARED = 8
IMMUTABLE = frozenset((int, float, bool, str, bytes, complex, type(None)))


class PackedList(Sequence[Any]):
    """The items of a list, unpacked when they are asked for.

    Whatever else a list can do (be added to, sorted, compared) it does as one, unpacked for good.

    >>> PackedList(["a", ("b", 1)])[-1]
    ('b', 1)
    """

    def __init__(self, items: Sequence[Any]) -> None:
        # Pickled by this process for itself and its workers: nothing that comes from a file is ever unpickled here.
        blocks = [pickle.dumps(item, protocol=pickle.HIGHEST_PROTOCOL) for item in items]
        self._ends = np.cumsum([len(block) for block in blocks], dtype=np.int64)
        self._bytes = np.frombuffer(b"".join(blocks), dtype=np.uint8)
        self._list: list[Any] | None = None

    def __len__(self) -> int:
        return len(self._ends) if self._list is None else len(self._list)

    def __getitem__(self, index: Any) -> Any:
        if self._list is not None:
            return self._list[index]
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        at = index + len(self) if index < 0 else index
        if not 0 <= at < len(self):
            raise IndexError(f"index {index} is beyond a list of {len(self)}")
        start = int(self._ends[at - 1]) if at else 0
        return pickle.loads(self._bytes[start : int(self._ends[at])].data)

    def __iter__(self) -> Iterator[Any]:
        return (self[at] for at in range(len(self)))

    @property
    def is_packed(self) -> bool:
        return self._list is None

    def _unpacked(self) -> list[Any]:
        if self._list is None:
            self._list = list(self)
        return self._list

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._unpacked(), name)  # append, sort, copy, ...

    def __setitem__(self, index: Any, value: Any) -> None:
        self._unpacked()[index] = value

    def __delitem__(self, index: Any) -> None:
        del self._unpacked()[index]

    def __add__(self, other: list[Any]) -> list[Any]:
        return self._unpacked() + other

    def __radd__(self, other: list[Any]) -> list[Any]:
        return other + self._unpacked()

    def __mul__(self, times: int) -> list[Any]:
        return self._unpacked() * times

    def __eq__(self, other: object) -> bool:
        return self._unpacked() == (other._unpacked() if isinstance(other, PackedList) else other)

    __hash__ = None  # type: ignore[assignment]


class Packing:
    """A data set for worker processes, whose long lists are packed where that changes nothing.

    Only lists of what cannot change (texts, numbers, tuples of them): so nobody can change an item of the user's list
    without putting another one in its place, and an item that a worker unpacks is as good as the one in the list. The
    data set itself is left alone: what is handed out is another object over the same content.
    """

    def __init__(self, data: Any) -> None:
        self._data = data
        self._packed: dict[str, tuple[list[Any], PackedList]] = {}  # by name: the items as they were, and their bytes
        self._is_safe: bool | None = None

    def current(self) -> Any:
        """The data set as it is now: lists that were changed since the last time are packed anew."""
        if type(self._data) is list:
            return self._pack("", self._data) or self._data
        lists = {name: made for name, value in _long_lists(self._data) if (made := self._pack(name, value)) is not None}
        if not lists or not _can_have_a_twin(type(self._data)):
            return self._data
        twin = _twin(self._data, lists)
        if self._is_safe is None:
            self._is_safe = _reads_the_same(self._data, twin)
        return twin if self._is_safe else self._data

    def _pack(self, name: str, items: list[Any]) -> PackedList | None:
        if len(items) < WORTH_PACKING:
            return None
        known = self._packed.get(name)
        if known is not None and len(known[0]) == len(items) and all(map(operator.is_, known[0], items)):
            return known[1]
        self._packed.pop(name, None)
        if not all(map(_is_immutable, items)):
            return None
        self._packed[name] = list(items), PackedList(items)
        return self._packed[name][1]


def _long_lists(data: Any) -> list[tuple[str, list[Any]]]:
    return [(name, value) for name, value in getattr(data, "__dict__", {}).items()
            if type(value) is list and len(value) >= WORTH_PACKING]  # fmt: skip


def _is_immutable(item: Any) -> bool:
    kind = type(item)
    if kind in IMMUTABLE or issubclass(kind, PurePath):
        return bool(item == item)  # not NaN, which a list finds by its identity
    return kind is tuple and all(map(_is_immutable, item))


def _can_have_a_twin(kind: type) -> bool:
    return not copyreg._slotnames(kind) and not hasattr(kind, "__copy__")  # type: ignore[attr-defined]


def _twin(data: Any, lists: dict[str, PackedList]) -> Any:
    """Another object with the attributes of ``data``. Not by copying: that asks the class, which may leave some out."""
    made = object.__new__(type(data))
    made.__dict__.update(vars(data))
    made.__dict__.update(lists)
    return made


def _reads_the_same(data: Any, twin: Any) -> bool:
    """Whether both give the same for a few samples, and neither is changed by that; tried where it leaves no trace."""
    try:
        return bool(dry_run(lambda both: _gives_same_samples(*both), (data, twin)))
    except WouldWriteFiles:
        return False


def _gives_same_samples(data: Any, twin: Any) -> bool:
    try:
        length = len(data)
        alike = len(twin) == length and all(
            _give_the_same(data, twin, at) for at in range(0, length, max(1, length // COMPARED))
        )
    except Exception:  # a class that does with its list what only a list can
        return False
    lists = [value for value in vars(twin).values() if isinstance(value, PackedList)]
    return alike and all(made.is_packed for made in lists)


def _give_the_same(data: Any, twin: Any, at: int) -> bool:
    """Whether both give the same sample, with the same random numbers."""
    with seeded(at):
        one = data[at]
    with seeded(at):
        return same(one, twin[at])
