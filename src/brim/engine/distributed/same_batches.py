"""Whether all ranks read the same batches: brim gives each its share of every batch, so they must be the same ones.

A sampler, or a data set, that shards by itself would be cut once more, and half of the data never be trained on; one
that shuffles with a seed of each rank's own would have samples trained on twice, and others never.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from itertools import chain, islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brim.data import Batch, Loader, batch_length
from brim.data.columns.columns import columns_of
from brim.engine.distributed.ranks import Ranks
from brim.errors import DataError
from brim.sizes import known_length

LOOKED_AT = 1 << 16  # numbers of a tensor
ITEMS = 64  # of a table that a data set keeps
DEPTH = 3
ADVICE = (
    "brim gives each rank its share of every batch by itself, so leave sharding to it and seed shuffling alike on all "
    "ranks, with the batch_size of all ranks together"
)
Tell = Callable[[str], Any]


def same_on_all_ranks(batches: Iterator[Batch], ranks: Ranks, what: str, most: int, warn: Tell) -> Iterator[Batch]:
    """The same batches, once the first ``most`` of them are known to be alike on all ranks; all ask at one time.

    Where they differ as a whole it is refused; where parts of them do, as augmentation does that draws from a generator
    of its own, ``warn`` hears of it.
    """
    first = list(islice(batches, most))
    told = ranks.all_gather_object([marks_of(batch) for batch in first])
    for number in range(max(map(len, told))):
        _compare([batch[number] if number < len(batch) else None for batch in told], ranks, what, warn)
    return chain(first, batches)


def check_same_data(loader: Loader, ranks: Ranks, what: str, warn: Tell) -> None:
    """The same for a data set of which each rank reads its own samples only: by what can be seen without reading."""
    told = ranks.all_gather_object((loader.samples, loader.batch_size, loader.shuffle, _identity(loader.data)))
    if len({(samples, size, shuffle) for samples, size, shuffle, _ in told}) > 1 or len({d for *_, (d, _) in told}) > 1:
        raise DataError(f"{what} is not the same on all ranks: {ADVICE}")
    tables = [table for *_, (_, table) in told]
    differ = any(_differ(tables[0][name], other.get(name, ())) for other in tables for name in tables[0])
    if differ and ranks.is_first:
        warn(f"what {type(loader.data).__name__} keeps for its samples is not the same on all ranks: {ADVICE}")


def _compare(marks: list[dict[str, str] | None], ranks: Ranks, what: str, warn: Tell) -> None:
    if all(mark == marks[0] for mark in marks):
        return
    first = marks[0]
    if any(first is None or mark is None or tell_apart(first, mark) for mark in marks):
        raise DataError(f"the ranks read different batches from {what}: {ADVICE}")
    if ranks.is_first:
        warn(
            f"the ranks read batches from {what} that differ in part; if it shards or shuffles on each rank by itself, "
            f"samples are left out: {ADVICE}"
        )


def tell_apart(one: dict[str, str], other: dict[str, str]) -> bool:
    """Whether two batches hold other samples: not where a part of them is the same, and that tells samples apart."""
    if one == other:
        return False
    alike = any(other.get(name) == mark for name, mark in one.items() if name != "samples")
    return not alike or one.get("samples") != other.get("samples")


def marks_of(batch: Batch) -> dict[str, str]:
    """A mark for each part of a batch that tells samples apart: one that is all the same value does not."""
    found: dict[str, str] = {"samples": str(_samples(batch))}
    _mark("batch", batch, DEPTH, found)
    return found


def _samples(batch: Batch) -> int | None:
    try:
        return batch_length(batch)
    except DataError:
        return None


def _mark(name: str, value: Any, depth: int, found: dict[str, str]) -> None:
    if isinstance(value, Tensor | np.ndarray):
        if (mark := mark_of(value)) is not None:
            found[name] = mark
    elif isinstance(value, str | bytes | int | float):
        found[name] = _hash(repr(value).encode())
    elif isinstance(value, Mapping) and depth:
        for key, item in value.items():
            _mark(f"{name}[{key!r}]", item, depth - 1, found)
    elif isinstance(value, list | tuple) and depth:
        for number, item in enumerate(value):
            _mark(f"{name}[{number}]", item, depth - 1, found)
    elif depth and hasattr(value, "__dict__"):
        for key, item in vars(value).items():
            _mark(f"{name}.{key}", item, depth - 1, found)


def mark_of(value: Tensor | np.ndarray[Any, Any]) -> str | None:
    """What tells a tensor from others, by some of its numbers; None where all of them are the same.

    >>> mark_of(torch.arange(3)) == mark_of(torch.arange(3)), mark_of(torch.ones(3))
    (True, None)
    """
    if isinstance(value, np.ndarray):
        flat = value.reshape(-1)[:: max(1, value.size // LOOKED_AT)]
        is_constant = flat.size > 0 and flat.dtype != object and bool((flat == flat[0]).all())
        return None if is_constant else _hash(repr((value.dtype, value.shape)).encode(), repr(flat.tolist()).encode())
    if value.layout is not torch.strided or value.is_meta:
        return None
    flats = value.detach().reshape(-1)
    some = flats[:: max(1, flats.numel() // LOOKED_AT)].cpu().contiguous()
    if some.numel() and bool((some == some[0]).all()):
        return None
    return _hash(repr((value.dtype, tuple(value.shape))).encode(), some.view(torch.uint8).numpy().tobytes())


def _identity(data: Any, depth: int = DEPTH) -> tuple[str, dict[str, list[str | None]]]:
    """What tells a data set from another: what it says of itself, and marks of the tables that it keeps."""
    own, tables = hashlib.blake2b(type(data).__name__.encode()), {}
    if (columns := columns_of(data)) is not None:
        marks: dict[str, str] = {}
        _mark("columns", list(columns.values()) if isinstance(columns, dict) else columns, DEPTH, marks)
        own.update(repr(sorted(marks.items())).encode())
        return own.hexdigest(), {}
    own.update(repr((getattr(data, "_fingerprint", None), _some(getattr(data, "indices", None)))).encode())
    length = known_length(data)
    for name, value in vars(data).items() if hasattr(data, "__dict__") else ():
        if isinstance(value, list | tuple | np.ndarray | Tensor) and length and known_length(value) == length:
            tables[name] = _some(value) or []
    inner = [getattr(data, "dataset", None), *(getattr(data, "datasets", None) or ())]
    for number, one in enumerate(item for item in inner if item is not None and depth):
        mark, below = _identity(one, depth - 1)
        own.update(mark.encode())
        tables.update({f"{number}.{name}": table for name, table in below.items()})
    return own.hexdigest(), tables


def _some(table: Any) -> list[str | None] | None:
    """Marks of some of a table's items; None for those that have none, such as places of a cache not filled yet."""
    length = known_length(table)
    if length is None or isinstance(table, Mapping | str | bytes):
        return None
    found: list[str | None] = []
    for number in range(0, length, max(1, length // ITEMS)):
        marks: dict[str, str] = {}
        _mark("item", table[number], 1, marks)
        found.append(repr(sorted(marks.items())) if marks else None)
    return found


def _differ(one: Any, other: Any) -> bool:
    return any(a is not None and b is not None and a != b for a, b in zip(one, other, strict=False))


def _hash(*parts: bytes) -> str:
    made = hashlib.blake2b(digest_size=12)
    for part in parts:
        made.update(part)
    return made.hexdigest()
