"""A lock on a file, held by a process and its forks, and let go by the system when they end, however they end."""

import contextlib
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

POLL_SECONDS = 0.05
SAY_SO_SECONDS = 2.0


class FileLock:
    """A file that is open and locked until :meth:`close`, or until this object is freed."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    def is_still(self, path: Path) -> bool:
        """Whether ``path`` is the locked file: somebody may have removed it, or put another one in its place."""
        if self._descriptor is None:
            return False
        try:
            now = path.stat()
        except OSError:
            return False
        then = os.fstat(self._descriptor)
        return (now.st_ino, now.st_dev) == (then.st_ino, then.st_dev)

    def close(self) -> None:
        """Let go of it in this process; forks that inherited it still hold it."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def release(self) -> None:
        """Let go of it everywhere, in forks as well."""
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                _unlock(self._descriptor)
            self.close()

    def __del__(self) -> None:
        self.close()


def try_lock(path: Path, *, exclusive: bool, create: bool = False) -> FileLock | None:
    """The lock, or None where somebody holds one that excludes it. A missing file is FileNotFoundError."""
    descriptor = _open(path, exclusive, create)
    try:
        if not _lock(descriptor, exclusive):
            os.close(descriptor)
            return None
    except BaseException:
        os.close(descriptor)
        raise
    return FileLock(descriptor)


def wait_for_lock(path: Path, waiting: Callable[[], None]) -> FileLock:
    """The exclusive lock, as soon as it is free; ``waiting`` is called once, after two seconds."""
    started, has_said_so = time.monotonic(), False
    while True:
        lock = try_lock(path, exclusive=True, create=True)
        if lock is not None:
            if lock.is_still(path):
                return lock
            lock.close()
            continue  # its last holder removed the file: the lock is another file's now
        if not has_said_so and time.monotonic() - started >= SAY_SO_SECONDS:
            waiting()
            has_said_so = True
        time.sleep(POLL_SECONDS)


def _open(path: Path, exclusive: bool, create: bool) -> int:
    here = getattr(os, "O_NOFOLLOW", 0)  # a link in the place of the lock would have its target made, or touched
    flags = here | (os.O_CREAT if create else 0)
    try:
        return os.open(path, os.O_RDWR | flags, 0o666)  # NFS makes an exclusive flock of a file open for writing only
    except PermissionError:
        if exclusive:
            raise
    except OSError:
        if exclusive or not path.exists():
            raise
    return os.open(path, os.O_RDONLY | here)  # a read-only folder


if sys.platform == "win32":
    import msvcrt

    def _lock(descriptor: int, exclusive: bool) -> bool:
        if not exclusive:
            return True  # Windows removes no folder in which a file is open: being open is the shared lock
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def _unlock(descriptor: int) -> None:
        os.lseek(descriptor, 0, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def _lock(descriptor: int, exclusive: bool) -> bool:
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _unlock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
