"""A tar file that has no index, looked through once: where its samples lie, their sums, and whether it is whole."""

import hashlib
import re
import tarfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

import numpy as np

from brim.data.tar.index import COLUMNS, IndexedShard, SampleTable, encode_key
from brim.errors import DataError

MEMBER = re.compile(r"((?:.*/)?[^./][^./]*)\.([^/]+)", re.DOTALL)
METADATA = re.compile(r"__[^/]*__(?:$|/)")  # webdataset's own notes, which are no samples
COMPRESSED = {b"\x1f\x8b": "gzip", b"BZ": "bzip2", b"\xfd7": "xz", b"\x28\xb5": "zstd"}
CHUNK = 1 << 22
# A header can claim that a name takes more than all memory, or that a name follows a name, a thousand times.
UNREADABLE = (tarfile.TarError, ValueError, OverflowError, EOFError, MemoryError, RecursionError)

OnBytes = Callable[[int], None]
"""Called with how many more bytes have been read."""


@dataclass(frozen=True)
class Scan:
    """A shard as it was found; ``problem`` says why it is not whole, where it is not."""

    shard: IndexedShard
    problem: str | None


class TableBuilder:
    """Collects samples of one shard."""

    def __init__(self) -> None:
        self.fields: dict[str, int] = {}
        self.columns: dict[str, list[int]] = {name: [] for name in COLUMNS if name != "keys"}
        self.keys = bytearray()

    def add(self, key: str, members: list[tuple[str, int, int]], crc32: int = 0) -> None:
        """A sample; its members are (field, start of the content in the file, length)."""
        add, encoded = self.columns, encode_key(key)
        (_, offset, _), (_, last_start, last_length) = members[0], members[-1]
        values = {"offset": offset, "size": last_start + last_length - offset, "crc32": crc32}
        for name, value in (values | {"members": len(members), "key_size": len(encoded)}).items():
            add[name].append(value)
        for field, start, length in members:
            add["start"].append(start - offset)
            add["length"].append(length)
            add["field"].append(self.fields.setdefault(field, len(self.fields)))
        self.keys += encoded

    def table(self) -> SampleTable:
        columns = {name: np.array(values, COLUMNS[name]) for name, values in self.columns.items()}
        return SampleTable(**columns, keys=np.frombuffer(bytes(self.keys), np.uint8))


def split_name(name: str) -> tuple[str, str] | None:
    """Key and field of a member: the base name is cut at its first dot. None for what belongs to no sample.

    >>> split_name("cats/0001.seg.png")
    ('cats/0001', 'seg.png')
    """
    match = MEMBER.fullmatch(name)
    return (match[1], match[2].lower()) if match and not METADATA.match(name) else None


def scan(path: Path, on_bytes: OnBytes = lambda more: None) -> Scan:
    """Look through ``path``. A file that is no tar, or holds what no shard should hold, is a DataError."""
    builder = TableBuilder()
    try:
        state = path.stat()
        with path.open("rb") as file:
            problem = _read_members(path, file, state.st_size, builder)
            table = builder.table()
            table.crc32[:], sha256 = _sums(file, table, on_bytes)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
    shard = IndexedShard(path.name, state.st_size, sha256, tuple(builder.fields), table, state.st_mtime_ns)
    return Scan(shard, problem)


def _read_members(path: Path, file: BinaryIO, size: int, builder: TableBuilder) -> str | None:
    """Collect the samples of a tar; gives what is wrong with its end, or None."""
    key = ""
    members: dict[str, tuple[int, int]] = {}  # field to start and length of its content
    tar = _open(path, file)
    try:
        while (member := tar.next()) is not None:
            tar.members.clear()  # type: ignore[attr-defined]  # else every header of the file stays in memory
            _refuse_unsafe(path, member)
            named = split_name(member.name) if member.isreg() else None
            if named and named[0] != key:
                if members:
                    builder.add(key, [(field, *place) for field, place in members.items()])
                key, members = named[0], {}
            if member.offset_data + member.size > size:
                return f"it ends within {member.name!r}"
            if named and named[1] in members:
                raise DataError(f"{path} holds {member.name!r} twice in one sample; each sample needs its own key")
            if named:
                members[named[1]] = member.offset_data, member.size
    except UNREADABLE as error:
        return str(error) or type(error).__name__
    # tarfile takes any header that it cannot read for the end.
    file.seek(tar.offset)
    if file.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
        return f"no header and no end mark at byte {tar.offset:,}"  # the sample before it may lack members
    if members:
        builder.add(key, [(field, *place) for field, place in members.items()])
    return None


def _open(path: Path, file: BinaryIO) -> tarfile.TarFile:
    try:
        return tarfile.open(fileobj=file, mode="r:")
    except UNREADABLE as error:
        file.seek(0)
        packed = COMPRESSED.get(file.read(2))
        what = f"is compressed with {packed}, so its samples cannot be reached; unpack it first" if packed else ""
        raise DataError(f"{path} {what or f'is not a tar file: {error}'}") from error


def _refuse_unsafe(path: Path, member: tarfile.TarInfo) -> None:
    """brim extracts nothing, so none of these could do harm here; who wrote them meant harm, or made a mistake."""
    name = PurePosixPath(member.name)
    if name.is_absolute() or ".." in name.parts:
        raise DataError(f"{path} holds the name {member.name!r}, which leads out of its folder; brim does not read it")
    if member.islnk() or member.issym():
        raise DataError(f"{path} holds {member.name!r}, which is a link; a shard may hold plain files only")
    if not (member.isreg() or member.isdir()) or member.issparse() or member.size < 0:
        raise DataError(f"{path} holds {member.name!r}, which is not a plain file; a shard may hold plain files only")


def _sums(file: BinaryIO, table: SampleTable, on_bytes: OnBytes) -> tuple[list[int], str]:
    """The CRC-32 of every sample and the SHA-256 of the file, in one reading from start to end."""
    sha256, crcs = hashlib.sha256(), []
    file.seek(0)

    def read(count: int) -> int:
        """Read on; gives the CRC-32 of what was read."""
        crc = 0
        while count > 0 and (chunk := file.read(min(count, CHUNK))):
            sha256.update(chunk)
            crc = zlib.crc32(chunk, crc)
            count -= len(chunk)
        return crc

    told = 0
    for offset, size in zip(table.offset.tolist(), table.size.tolist(), strict=True):
        read(offset - file.tell())
        crcs.append(read(size))
        if file.tell() - told > CHUNK:
            on_bytes(file.tell() - told)
            told = file.tell()
    while chunk := file.read(CHUNK):
        sha256.update(chunk)
    on_bytes(file.tell() - told)
    return crcs, sha256.hexdigest()
