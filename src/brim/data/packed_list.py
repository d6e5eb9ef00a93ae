"""A long list of small Python objects, kept as one block of bytes.

Worker processes share the parent's memory until somebody writes to it, and Python writes to every object that it merely
looks at: its reference count. A list of a million objects is so copied into every worker, page by page (pytorch#13246).
Bytes in one block have one reference count.
"""

import copy
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from brim.data.batched import same
from brim.data.seeding import seeded

WORTH_PACKING = 10_000  # items
COMPARED = 8
ORIGINAL = "_packed_from"


@dataclass(frozen=True)
class _Original:
    """What a packed data set was made of. Workers that are not forked get None: it is what packing spares them."""

    data: Any
    lists: dict[str, Any]

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(None), ())


class PackedList(Sequence[Any]):
    """The items of a list, unpacked when they are asked for.

    >>> PackedList(["a", ("b", 1)])[-1]
    ('b', 1)
    """

    def __init__(self, items: Sequence[Any]) -> None:
        # Pickled by this process for itself and its workers: nothing that comes from a file is ever unpickled here.
        blocks = [pickle.dumps(item, protocol=pickle.HIGHEST_PROTOCOL) for item in items]
        self._ends = np.cumsum([len(block) for block in blocks], dtype=np.int64)
        self._bytes = np.frombuffer(b"".join(blocks), dtype=np.uint8)

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        at = index + len(self) if index < 0 else index
        if not 0 <= at < len(self):
            raise IndexError(f"index {index} is beyond a list of {len(self)}")
        start = int(self._ends[at - 1]) if at else 0
        return pickle.loads(self._bytes[start : int(self._ends[at])].data)

    def __iter__(self) -> Iterator[Any]:
        return (self[at] for at in range(len(self)))


def packed(data: Any) -> Any:
    """``data`` for worker processes: its long lists, or itself, as packed lists where that changes nothing.

    The data set itself is left alone: what is handed back is another object over the same content.
    """
    if type(data) is list:
        return _try_packing(data) if len(data) >= WORTH_PACKING else data
    attributes = getattr(data, "__dict__", {})
    long = {name: value for name, value in attributes.items() if type(value) is list and len(value) >= WORTH_PACKING}
    lists = {name: made for name, value in long.items() if (made := _try_packing(value)) is not value}
    if not lists:
        return data
    try:
        twin = copy.copy(data)
        for name, made in lists.items():
            setattr(twin, name, made)
        length = len(data)
        # On copies: files that a data set opens when first asked must not be open when its workers start.
        one, other = copy.copy(data), copy.copy(twin)
        alike = all(_give_the_same(one, other, at) for at in range(0, length, max(1, length // COMPARED)))
    except Exception:  # a class that cannot be copied, or that does with its list what only a list can
        return data
    if not alike or len(twin) != length:
        return data
    twin.__dict__[ORIGINAL] = _Original(data, lists)
    return twin


def refresh(twin: Any) -> None:
    """Let a packed data set follow the one it was made of, whose attributes may have changed since (an epoch, say)."""
    original = getattr(twin, "__dict__", {}).get(ORIGINAL)
    if original is None:
        return
    for name, value in vars(original.data).items():
        made = original.lists.get(name)
        is_packed = made is not None and type(value) is list and len(value) == len(made)
        twin.__dict__[name] = made if is_packed else value


def _try_packing(items: list[Any]) -> Sequence[Any]:
    try:
        made = PackedList(items)
        alike = all(same(items[at], made[at]) for at in range(0, len(items), len(items) // COMPARED))
    except Exception:  # objects that cannot be pickled or compared
        return items
    return made if alike else items


def _give_the_same(data: Any, twin: Any, at: int) -> bool:
    """Whether both give the same sample, with the same random numbers."""
    with seeded(at, restore=True):
        one = data[at]
    with seeded(at, restore=True):
        return same(one, twin[at])
