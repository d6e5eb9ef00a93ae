"""The folder that a cache's entries share: their names, their sizes, which of them goes first.

An entry is a folder ``<key>.brim``. It is written aside as ``<key>.brim.half-...`` while ``<key>.brim.lock`` is held,
and renamed when it is complete. Whoever has it open holds a shared lock on the file ``lock`` in it, whose time of
modification is when it was last used. Nothing in the folder with another name is ever touched.
"""

import contextlib
import errno
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from brim.data.cache.file_lock import FileLock, try_lock, wait_for_lock
from brim.errors import DataError
from brim.sizes import show_bytes
from brim.whole_files import flush

ENTRY = re.compile(r"[0-9a-f]{32}\.brim")
LEFT_OVER = re.compile(r"([0-9a-f]{32}\.brim)\.(?:half|trash)-[0-9a-f]{8}")
LOCK = "lock"


class CacheFolder:
    """The entries in ``path``, together at most ``max_size`` bytes."""

    def __init__(self, path: Path, max_size: int) -> None:
        self.path = path
        self.max_size = max_size

    def entry(self, key: str) -> Path:
        return self.path / f"{key}.brim"

    @contextlib.contextmanager
    def building(self, entry: Path, report: Callable[[str], None]) -> Iterator[None]:
        """Be the only one who builds ``entry``, after waiting for whoever does."""
        path = entry.with_name(f"{entry.name}.lock")
        sentence = f"waiting for another process that is building the cache entry {entry}"
        lock = wait_for_lock(path, lambda: report(sentence))
        try:
            yield
        finally:
            with contextlib.suppress(OSError):  # Windows removes no open file
                path.unlink()
            lock.release()

    @contextlib.contextmanager
    def half(self, entry: Path) -> Iterator[Path]:
        """A folder to write into that becomes ``entry`` at the end, or is removed where something goes wrong."""
        half = entry.with_name(f"{entry.name}.half-{secrets.token_hex(4)}")
        half.mkdir()
        try:
            (half / LOCK).touch()
            yield half
            flush(half)
            if entry.exists() or entry.is_symlink():
                discard(entry)
            half.rename(entry)
            flush(self.path)
        except BaseException:
            shutil.rmtree(half, ignore_errors=True)
            raise

    def make_room(self, needed: int, half: Path) -> None:
        """Room for ``half`` to grow to ``needed`` bytes: what killed builders left is removed and, least recently used
        first, entries that nobody has open."""
        self._remove_left_overs()
        there = [path for path in self.path.iterdir() if path != half]
        used = {path: size_of(path) for path in there if ENTRY.fullmatch(path.name)}
        halves = sum(size_of(path) for path in there if LEFT_OVER.fullmatch(path.name))
        total = sum(used.values()) + halves
        for path in sorted(used, key=last_used):
            if total + needed <= self.max_size:
                return
            if remove_unless_open(path):
                total -= used[path]
        if total + needed > self.max_size:
            raise DataError(
                f"the cache needs about {show_bytes(needed)}, and {self.path} holds {show_bytes(total)} that are in "
                f"use, together more than max_size={show_bytes(self.max_size)}; raise max_size= or take another folder"
            )

    def _remove_left_overs(self) -> None:
        for path in list(self.path.iterdir()):
            match = LEFT_OVER.fullmatch(path.name)
            if match is None or path.is_symlink():
                continue
            lock_path = path.with_name(f"{match[1]}.lock")
            lock = try_lock(lock_path, exclusive=True, create=True)
            if lock is None:
                continue  # somebody is building it
            if lock.is_still(lock_path):
                shutil.rmtree(path, ignore_errors=True)
                lock_path.unlink(missing_ok=True)
            lock.release()


def remove_left_overs_of(entry: Path) -> None:
    """Remove what killed builders of ``entry`` left, for whoever holds its building lock."""
    for path in entry.parent.glob(f"{entry.name}.*"):
        if LEFT_OVER.fullmatch(path.name) and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)


def lock_in_use(entry: Path) -> FileLock | None:
    """A lock that keeps ``entry`` from being removed to make room, or None where it is not there."""
    try:
        lock = try_lock(entry / LOCK, exclusive=False)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):  # ELOOP: a link in its place
            return None
        raise
    with contextlib.suppress(OSError):  # a read-only folder
        os.utime(entry / LOCK)
    return lock


def remove_unless_open(entry: Path) -> bool:
    """Whether the entry is gone; it stays where a process has it open."""
    try:
        lock = try_lock(entry / LOCK, exclusive=True)
        if lock is None:
            return False
    except FileNotFoundError:
        lock = None
    except OSError:
        return False
    try:
        return discard(entry)
    finally:
        if lock is not None:
            lock.release()


def discard(entry: Path) -> bool:
    """Take the entry out of sight at once, then remove it. Maps of it that are open stay readable."""
    if entry.is_symlink():
        entry.unlink()
        return True
    trash = entry.with_name(f"{entry.name}.trash-{secrets.token_hex(4)}")
    try:
        entry.rename(trash)
    except FileNotFoundError:
        return True
    except PermissionError:  # Windows, where it is open
        return False
    shutil.rmtree(trash, ignore_errors=True)
    return True


def size_of(folder: Path) -> int:
    """Bytes of the files in a folder."""
    total = 0
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        for file in folder.iterdir():
            with contextlib.suppress(FileNotFoundError):
                total += file.lstat().st_size
    return total


def last_used(entry: Path) -> float:
    try:
        return (entry / LOCK).stat().st_mtime
    except OSError:
        return 0.0
