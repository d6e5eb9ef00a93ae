"""The index of a folder of shards: what each file should be, and where each sample lies in it.

``index.json`` is for people and tools: the files, their sizes, sums, counts and fields. ``index.npy`` beside it holds
the columns of a table, as .npy arrays one after the other, so that a million samples are known in a blink. The JSON is
written last and knows the sum of the table: there is a whole index, or none.
"""

import io
import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from brim.errors import DataError
from brim.whole_files import flush, written_aside

FORMAT = 1
INDEX = "index.json"
TABLE = "index.npy"

Array = np.ndarray[Any, Any]

PER_SAMPLE = {"offset": np.int64, "size": np.int64, "crc32": np.uint32, "members": np.int32, "key_size": np.int32}
PER_MEMBER = {"start": np.int64, "length": np.int64, "field": np.int32}
COLUMNS: dict[str, Any] = {**PER_SAMPLE, **PER_MEMBER, "keys": np.uint8}


@dataclass(frozen=True, eq=False)
class SampleTable:
    """Where samples lie in their file, column by column."""

    offset: Array  # of the first member's content
    size: Array  # from there to the end of the last member's content
    crc32: Array  # of those bytes
    members: Array  # how many
    key_size: Array
    start: Array  # per member: its content, relative to the sample's offset
    length: Array
    field: Array  # per member: its name, as a position in the shard's fields
    keys: Array  # all keys as UTF-8, one after the other

    def __len__(self) -> int:
        return len(self.offset)

    def columns(self) -> dict[str, Array]:
        return {name: getattr(self, name) for name in COLUMNS}

    def first(self, samples: int) -> "SampleTable":
        """The first ``samples`` samples."""
        members, keys = int(self.members[:samples].sum()), int(self.key_size[:samples].sum())
        return self._cut(slice(0, samples), slice(0, members), slice(0, keys))

    def _cut(self, samples: slice, members: slice, keys: slice) -> "SampleTable":
        cuts = {**dict.fromkeys(PER_SAMPLE, samples), **dict.fromkeys(PER_MEMBER, members), "keys": keys}
        return SampleTable(**{name: column[cuts[name]] for name, column in self.columns().items()})

    def split(self, counts: Iterable[int]) -> list["SampleTable"]:
        """The tables of files with ``counts`` samples that were joined to this one."""
        parts, sample, member, key = [], 0, 0, 0
        for count in counts:
            end = sample + count
            member_end = member + int(self.members[sample:end].sum())
            key_end = key + int(self.key_size[sample:end].sum())
            parts.append(self._cut(slice(sample, end), slice(member, member_end), slice(key, key_end)))
            sample, member, key = end, member_end, key_end
        return parts


def join(tables: list[SampleTable]) -> SampleTable:
    """One table with the samples of all, in order."""
    if not tables:
        return SampleTable(**{name: np.empty(0, dtype) for name, dtype in COLUMNS.items()})
    return SampleTable(**{name: np.concatenate([getattr(table, name) for table in tables]) for name in COLUMNS})


@dataclass(frozen=True)
class IndexedShard:
    """What one file should be, and where its samples lie."""

    file: str
    bytes: int
    sha256: str
    fields: tuple[str, ...]
    table: SampleTable
    mtime_ns: int | None = None
    """When the file was last changed; known where it was scanned and not packed, as a copy has another time."""

    def key(self, sample: int) -> str:
        end = int(self.table.key_size[: sample + 1].sum())
        return decode_key(self.table.keys[end - int(self.table.key_size[sample]) : end].tobytes())


@dataclass(frozen=True)
class ShardIndex:
    """The index of one folder."""

    packed: bool
    """Whether brim wrote the shards, and so knows what they should be; else they were scanned as they were found."""
    shards: Mapping[str, IndexedShard] = field(default_factory=dict)
    classes: tuple[str, ...] = ()
    """The names that labels stand for, where folders were the labels."""
    is_foreign: bool = False
    """Whether the index.json in the folder is that of another program, which is left alone."""


def encode_key(key: str) -> bytes:
    return key.encode("utf-8", "surrogateescape")  # as tarfile reads names that are not UTF-8


def decode_key(key: bytes) -> str:
    return key.decode("utf-8", "surrogateescape")


def write_index(folder: Path, index: ShardIndex) -> None:
    """Write both files, each aside and then renamed, the JSON last."""
    shards = sorted(index.shards.values(), key=lambda shard: shard.file)
    table = _table_bytes(join([shard.table for shard in shards]))
    described = {
        "format": FORMAT,
        "packed": index.packed,
        "samples": sum(len(shard.table) for shard in shards),
        "table": {"file": TABLE, "bytes": len(table), "crc32": zlib.crc32(table)},
        **({"classes": index.classes} if index.classes else {}),
        "shards": [_described(shard) for shard in shards],
    }
    _write_whole(folder / TABLE, table)
    _write_whole(folder / INDEX, (json.dumps(described, indent=1) + "\n").encode())


def _described(shard: IndexedShard) -> dict[str, Any]:
    facts = {"file": shard.file, "samples": len(shard.table), "bytes": shard.bytes, "sha256": shard.sha256}
    return {**facts, "fields": shard.fields, **({"mtime_ns": shard.mtime_ns} if shard.mtime_ns is not None else {})}


def _table_bytes(table: SampleTable) -> bytes:
    content = io.BytesIO()
    for column in table.columns().values():
        np.lib.format.write_array(content, column, allow_pickle=False)
    return content.getvalue()


def _table_of(content: bytes) -> SampleTable:
    """The columns where they lie: np.load would copy each of them in pieces, slower than the file is read."""
    columns, stream = {}, io.BytesIO(content)
    for name, dtype in COLUMNS.items():
        if np.lib.format.read_magic(stream) != (1, 0):
            raise ValueError(f"the column {name} has another format")
        shape, _, found = np.lib.format.read_array_header_1_0(stream)
        if found != dtype or len(shape) != 1:
            raise ValueError(f"the column {name} has another type")
        columns[name] = np.frombuffer(content, dtype, shape[0], stream.tell())
        stream.seek(columns[name].nbytes, io.SEEK_CUR)
    return SampleTable(**columns)


def _write_whole(path: Path, content: bytes) -> None:
    with written_aside(path) as aside:
        aside.write_bytes(content)
        flush(aside)


def read_index(folder: Path) -> ShardIndex | None:
    """The index of a folder, or None where there is none that can be used and the shards tell the same.

    An index that brim packed is the only word on what the shards should be, so a damaged one is an error.
    """
    try:
        described = json.loads((folder / INDEX).read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(_unusable(folder, str(error))) from error
    if not isinstance(described, dict) or not isinstance(described.get("format"), int) or "shards" not in described:
        return ShardIndex(packed=False, is_foreign=True)
    if described["format"] > FORMAT:
        raise DataError(_unusable(folder, "it was written by a newer version of brim"))
    try:
        return _parsed(folder, described)
    except Exception as error:  # numpy's own reader lets through whatever Python's tokenizer raises
        if described.get("packed") is not True:
            return None
        raise DataError(_unusable(folder, str(error))) from error


def _unusable(folder: Path, why: str) -> str:
    return f"{folder / INDEX} cannot be used ({why}), and without it the shards would have to be scanned"


def _parsed(folder: Path, described: dict[str, Any]) -> ShardIndex:
    content = (folder / TABLE).read_bytes()
    if zlib.crc32(content) != described["table"]["crc32"]:
        raise ValueError(f"{TABLE} is not the one it was written with")
    table = _table_of(content)
    if sum(shard["samples"] for shard in described["shards"]) != len(table):
        raise ValueError(f"{TABLE} has another number of samples")
    parts = table.split(shard["samples"] for shard in described["shards"])
    shards = {}
    for shard, part in zip(described["shards"], parts, strict=True):
        fields = tuple(str(name) for name in shard["fields"])
        check_table(part, int(shard["bytes"]), len(fields), shard["samples"])
        name = str(shard["file"])
        shards[name] = IndexedShard(
            name, int(shard["bytes"]), str(shard["sha256"]), fields, part, shard.get("mtime_ns")
        )
    return ShardIndex(described["packed"] is True, shards, tuple(described.get("classes", ())))


def check_table(table: SampleTable, size: int, fields: int, samples: int) -> None:
    """Refuse a table that points outside its file or its samples: an index may come from anywhere."""
    per_sample = [table.offset, table.size, table.crc32, table.members, table.key_size]
    per_member = [table.start, table.length, table.field]
    if int(table.members.sum()) != len(table.start):  # before repeat makes room for as many as are claimed
        raise ValueError("it has another number of members")
    sample = np.repeat(np.arange(len(table)), table.members)  # negative numbers are refused by repeat
    sound = (
        all(column.shape == (samples,) for column in per_sample)
        and all(column.shape == sample.shape for column in per_member)
        and all(column.size == 0 or column.min() >= 0 for column in (*per_sample, *per_member))
        and bool((table.size <= size - table.offset).all())
        and bool((table.length <= table.size[sample] - table.start).all())
        and bool((table.field < fields).all())
        and int(table.key_size.sum()) == len(table.keys)
    )
    if not sound:
        raise ValueError("it points outside the shards")
