"""Samples written as tar shards with their index: all of them or none, and the same bytes for the same samples."""

import hashlib
import os
import re
import shutil
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from brim.data.tar.files import PACKING
from brim.data.tar.index import INDEX, TABLE, IndexedShard, ShardIndex, read_index, write_index
from brim.data.tar.sample_sources import Labels, PackingSource, RawSample, open_source
from brim.data.tar.scan import TableBuilder
from brim.errors import ConfigError, DataError
from brim.sizes import check_whole, parse_bytes
from brim.whole_files import flush, folder_made

PREFIX = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")

OnSample = Callable[[int, int | None], None]
"""Called with the samples packed so far and, where it is known, how many there will be."""


@dataclass(frozen=True)
class PackSummary:
    """What was packed."""

    folder: Path
    shards: int
    samples: int
    bytes: int
    fields: tuple[str, ...]
    classes: tuple[str, ...] = ()
    left_out: int = 0
    """Files of the source without an extension, which belong to no sample."""


def pack(
    source: Any,
    out: str | Path,
    *,
    samples_per_shard: int | None = None,
    shard_bytes: str | int = "256MiB",
    prefix: str = "shard",
    shuffle_seed: int | None = None,
    labels: Labels | None = None,
    force: bool = False,
    on_sample: OnSample = lambda done, total: None,
) -> PackSummary:
    """Write the samples of ``source`` as shards into the folder ``out``.

    ``source`` is a folder of files, or a data set or iterable of samples: dicts of fields, tuples, or single values.
    A shard ends when it has ``samples_per_shard`` samples or the next would make it larger than ``shard_bytes``.
    ``labels="folder"`` adds the number of the first sub-folder as the field ``cls``. Shards that are in ``out`` are
    replaced only with ``force``; after an error or Ctrl-C, ``out`` is as it was.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pack([("a text", 0), ("another", 1)], folder).fields
    ('0.txt', '1.cls')
    """
    if samples_per_shard is not None:
        check_whole("samples_per_shard", samples_per_shard)
    limits = Limits(samples_per_shard, parse_bytes(shard_bytes, "shard_bytes"))
    if not PREFIX.fullmatch(prefix):
        raise ConfigError(f"prefix={prefix!r} must consist of letters, digits and -_. and start with none of -.")
    folder = Path(out).expanduser()
    if isinstance(source, str | Path) and folder.resolve().is_relative_to(Path(source).expanduser().resolve()):
        raise ConfigError(f"{out} lies inside {source}, and would be packed itself; choose another folder")
    samples = open_source(source, shuffle_seed, labels)
    try:
        with _aside(folder, force) as aside:
            old = _replaceable(folder, prefix, force)
            shards = _write_shards(samples, aside, prefix, limits, on_sample)
            write_index(aside, ShardIndex(True, {shard.file: shard for shard in shards}, samples.classes))
            _swap(folder, aside, old, [*(shard.file for shard in shards), TABLE, INDEX])
    except OSError as error:
        raise DataError(f"cannot write to {folder}: {error.strerror or error}; choose another folder") from error
    return PackSummary(
        folder,
        shards=len(shards),
        samples=sum(len(shard.table) for shard in shards),
        bytes=sum(shard.bytes for shard in shards),
        fields=tuple(dict.fromkeys(field for shard in shards for field in shard.fields)),
        classes=samples.classes,
        left_out=samples.left_out,
    )


@dataclass(frozen=True)
class Limits:
    """When a shard is full."""

    samples: int | None
    bytes: int


def _write_shards(
    source: PackingSource, aside: Path, prefix: str, limits: Limits, on_sample: OnSample
) -> list[IndexedShard]:
    shards: list[IndexedShard] = []
    done, last_key = 0, None
    writer: ShardWriter | None = None
    try:
        for sample in source.samples:
            if sample.key == last_key:
                raise DataError(f"two samples in a row have the key {sample.key!r}; give each its own")
            if writer is not None and writer.is_full(sample, limits):
                shards.append(writer.finish())
                writer = None
            writer = writer or ShardWriter(aside / f"{prefix}-{len(shards):06d}.tar")
            writer.add(sample)
            done, last_key = done + 1, sample.key
            on_sample(done, source.count)
        if writer is None:
            raise DataError("there is no sample to pack")
        shards.append(writer.finish())
    finally:
        if writer is not None:
            writer.close()
    return shards


class ShardWriter:
    """One tar file, written from start to end. Nothing in it depends on when, where or by whom it is written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self._file = path.open("xb")
        self._sha256 = hashlib.sha256()
        self._builder = TableBuilder()
        self._samples = 0

    def is_full(self, sample: RawSample, limits: Limits) -> bool:
        """Whether ``sample`` belongs into the next file."""
        size = self.size + sum(_blocks(len(content) + tarfile.BLOCKSIZE) for content in sample.members.values())
        return self._samples == limits.samples or size + tarfile.RECORDSIZE > limits.bytes

    def add(self, sample: RawSample) -> None:
        written = bytearray()
        members: list[tuple[str, int, int]] = []
        for field, content in sample.members.items():
            written += _header(f"{sample.key}.{field}", len(content))
            members.append((field, self.size + len(written), len(content)))
            written += content
            end = len(written)
            written += bytes(-end % tarfile.BLOCKSIZE)
        first = members[0][1] - self.size
        crc32 = zlib.crc32(memoryview(written)[first:end])
        self._write(written)
        self._builder.add(sample.key, members, crc32)
        self._samples += 1

    def finish(self) -> IndexedShard:
        """End the tar, and have it on the disk."""
        end = -(self.size + 2 * tarfile.BLOCKSIZE) % tarfile.RECORDSIZE + 2 * tarfile.BLOCKSIZE
        self._write(bytes(end))
        self._file.flush()
        os.fsync(self._file.fileno())
        self.close()
        fields = tuple(self._builder.fields)
        return IndexedShard(self.path.name, self.size, self._sha256.hexdigest(), fields, self._builder.table())

    def close(self) -> None:
        self._file.close()

    def _write(self, content: bytes | bytearray) -> None:
        self._file.write(content)
        self._sha256.update(content)
        self.size += len(content)


def _header(name: str, size: int) -> bytes:
    """A member's header: owner and time are zero, as is usual for archives that must not depend on them."""
    member = tarfile.TarInfo(name)
    member.size = size
    return member.tobuf(tarfile.PAX_FORMAT)


def _blocks(size: int) -> int:
    """``size`` rounded up to whole blocks."""
    return -(-size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE


@contextmanager
def _aside(folder: Path, force: bool) -> Iterator[Path]:
    """A place inside ``folder``, so on its disk, that is gone at the end; so are the folders made for it if empty.

    While it is there and an index is not, readers know that the folder is unfinished.
    """
    aside = folder / PACKING
    with folder_made(folder):
        if aside.exists() and not force:
            raise DataError(f"{aside} is there: another packing is at work, or was killed; if so, use force (--force)")
        if aside.exists():
            shutil.rmtree(aside)
        aside.mkdir()
        try:
            yield aside
        finally:
            shutil.rmtree(aside, ignore_errors=True)


def _replaceable(folder: Path, prefix: str, force: bool) -> list[str]:
    """The files of an earlier packing in ``folder``, which go when the new ones come."""
    there = sorted(path.name for path in folder.glob("*.tar"))
    indexes = [name for name in (INDEX, TABLE) if (folder / name).exists()]  # the JSON goes first, as it came last
    if (there or indexes) and not force:
        raise DataError(f"{folder} holds {(there + indexes)[0]} already; use force (--force) to replace its shards")
    mine = re.compile(re.escape(prefix) + r"-\d{6}\.tar")
    packed = _packed_names(folder)
    foreign = [name for name in there if name not in packed and not mine.fullmatch(name)]
    if foreign:
        raise DataError(f"{folder / foreign[0]} was not packed by brim, so it is not replaced; choose another folder")
    return [*indexes, *there]


def _packed_names(folder: Path) -> set[str]:
    try:
        index = read_index(folder)
    except DataError:
        return set()
    return set(index.shards) if index and index.packed else set()


def _swap(folder: Path, aside: Path, old: list[str], new: list[str]) -> None:
    """Put the new files in the place of the old ones, the index last; undone if it cannot be done whole."""
    before = aside / "before"
    before.mkdir()
    moves = [(folder / name, before / name) for name in old] + [(aside / name, folder / name) for name in new]
    done: list[tuple[Path, Path]] = []
    try:
        for start, end in moves:
            done.append((start, end))
            start.rename(end)
        flush(folder)
    except BaseException:  # Ctrl-C too
        for start, end in reversed(done):
            if end.exists() and not start.exists():
                end.rename(start)
        raise
