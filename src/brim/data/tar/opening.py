"""Files of shards, matched with what their index says of them; what no index knows is scanned, once."""

import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from brim.data.tar.index import IndexedShard, ShardIndex, read_index, write_index
from brim.data.tar.scan import OnBytes, scan
from brim.errors import DataError

SLOW_S = 2.0

OnDamage = Callable[[str], None]
"""Told, in a sentence, what is wrong with a file. Either raises it, or lets reading go on with what is there."""


@dataclass(frozen=True)
class OpenedShard:
    """A file that is there, and the samples in it that are whole."""

    path: Path
    shard: IndexedShard
    classes: tuple[str, ...] = ()


def open_shards(paths: list[Path], is_folder: bool, on_damage: OnDamage) -> list[OpenedShard]:
    """What is known of each file. Of a folder that brim packed, files that are missing are damage too."""
    opened: dict[Path, OpenedShard] = {}
    for folder in dict.fromkeys(path.parent for path in paths):
        inside = [path for path in dict.fromkeys(paths) if path.parent == folder]
        index = _index_of(folder, on_damage)
        if is_folder and index.packed:
            for name in sorted(set(index.shards) - {path.name for path in inside}):
                on_damage(f"{folder / name} is missing, with {len(index.shards[name].table):,} samples")
        shards = _in_folder(inside, index, on_damage)
        opened |= {path: OpenedShard(path, shard, index.classes) for path, shard in shards.items()}
    return [opened[path] for path in paths]


def _index_of(folder: Path, on_damage: OnDamage) -> ShardIndex:
    try:
        return read_index(folder) or ShardIndex(packed=False)
    except DataError as error:
        on_damage(str(error))
        return ShardIndex(packed=True)  # of nothing: what was packed is not written over


def _in_folder(paths: list[Path], index: ShardIndex, on_damage: OnDamage) -> dict[Path, IndexedShard]:
    sizes = {path: _state(path) for path in paths}
    known = {path: index.shards[path.name] for path in paths if _is_known(index, path, sizes[path])}
    new = [path for path in paths if path not in known]
    scanned: dict[Path, IndexedShard] = {}
    whole: dict[str, IndexedShard] = {}
    with _progress(paths[0].parent, sum(sizes[path].st_size for path in new)) as on_bytes:
        for path in new:
            found = scan(path, on_bytes)
            scanned[path] = found.shard
            if found.problem:
                on_damage(f"{path} is damaged after {len(found.shard.table):,} samples ({found.problem})")
            else:
                whole[path.name] = found.shard
    if whole and not (index.packed or index.is_foreign):  # an index by brim is the only word on what it packed
        with suppress(OSError):  # a folder that cannot be written is scanned each time
            write_index(paths[0].parent, replace(index, shards={**index.shards, **whole}))
    whole_or_cut = {path: _checked(path, shard, sizes[path].st_size, on_damage) for path, shard in known.items()}
    return whole_or_cut | scanned


def _state(path: Path) -> os.stat_result:
    try:
        state = path.stat()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error
    if not stat.S_ISREG(state.st_mode):  # reading a pipe would wait for ever
        raise DataError(f"cannot read {path}: it is not a file; remove it, or name the shards one by one")
    return state


def _is_known(index: ShardIndex, path: Path, state: os.stat_result) -> bool:
    shard = index.shards.get(path.name)
    return shard is not None and (index.packed or (shard.bytes, shard.mtime_ns) == (state.st_size, state.st_mtime_ns))


def _checked(path: Path, shard: IndexedShard, size: int, on_damage: OnDamage) -> IndexedShard:
    """The shard without the samples that lie beyond the end of its file."""
    if size == shard.bytes:
        return shard
    beyond = np.flatnonzero(shard.table.offset + shard.table.size > size)
    there = int(beyond[0]) if len(beyond) else len(shard.table)
    lost = len(shard.table) - there
    first = f", from {shard.key(there)!r} on" if lost else ""
    on_damage(f"{path} has {size:,} bytes instead of {shard.bytes:,}, and lacks {lost:,} samples{first}")
    return replace(shard, table=shard.table.first(there))


@contextmanager
def _progress(folder: Path, total: int) -> Iterator[OnBytes]:
    """A bar on the terminal once scanning has taken a while; nothing where stderr is a file."""
    console, begun = Console(stderr=True), time.monotonic()
    columns = TextColumn(f"indexing {folder}, once"), BarColumn(), DownloadColumn(), TimeRemainingColumn()
    bar = Progress(*columns, console=console, transient=True)
    task = bar.add_task("indexing", total=total)

    def on_bytes(more: int) -> None:
        bar.advance(task, more)
        if console.is_terminal and not bar.live.is_started and time.monotonic() - begun > SLOW_S:
            bar.start()

    try:
        yield on_bytes
    finally:
        if bar.live.is_started:  # a bar that never began would leave an empty line
            bar.stop()
