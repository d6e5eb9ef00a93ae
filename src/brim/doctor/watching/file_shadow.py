"""Writes go elsewhere: a script that is watched leaves the user's files as they are.

Whatever Python opens for writing lies in a folder of the doctor's, under the same path; what was written there is read
from there. Folders that the script makes are made there, and what it deletes is only hidden from it. Weights are saved
there too while an observation lasts, because saving may be what takes the time, but not without end; in trials it is
left out once training has begun. Files that other programs or native libraries write are not caught.
"""

import builtins
import errno
import io
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

LEFT_ALONE = ("/dev/", "/proc/", "/sys/")
SAVED_MOST = 8 << 30  # bytes of checkpoints that are written in training


class FileShadow:
    """Sends writes of this process, and of those that it forks, into a folder.

    Temporary files are written as they are, unless they lie in one of the ``homes``: where the script is, and runs.
    Those in ``own`` folders are always.
    """

    def __init__(
        self,
        folder: Path,
        on_open: Callable[[], None],
        homes: tuple[str, ...] = (),
        saves: bool = False,
        own: tuple[str, ...] = (),
    ) -> None:
        self.folder, self.on_open = str(folder), on_open
        self._left_alone = (*LEFT_ALONE, self.folder, *own)
        self._homes = tuple(home.rstrip(os.sep) + os.sep for home in homes)
        self.is_training = False
        self._saved_left = SAVED_MOST if saves else 0
        self.hidden: set[str] = set()  # what the script has deleted
        self._temporary = os.path.realpath(tempfile.gettempdir())
        self._stat, self._mkdir, self._open = os.stat, os.mkdir, builtins.open

    def install(self) -> None:
        builtins.open = io.open = self._watched_open
        self._watch_saving()
        for name in ("stat", "lstat", "access", "readlink", "listxattr", "getxattr", "statvfs"):
            if hasattr(os, name):  # some are Linux's
                setattr(os, name, self._reading(getattr(os, name)))
        os.listdir, os.scandir = self._listing(os.listdir), self._scanning(os.scandir)
        os.open = self._opening(os.open)
        os.mkdir = self._making(os.mkdir)
        for name in ("remove", "unlink", "rmdir"):
            setattr(os, name, self._deleting(getattr(os, name)))
        for name in ("rename", "replace"):
            setattr(os, name, self._moving(getattr(os, name)))
        for name in ("chmod", "utime", "chown", "setxattr", "truncate"):
            if hasattr(os, name):
                setattr(os, name, self._touching(getattr(os, name)))
        os.symlink, os.link = self._linking(os.symlink), self._linking(os.link)
        # These work on file descriptors below Python's names, past everything above.
        shutil.rmtree = self._remove_tree  # type: ignore[assignment]

    def target(self, path: Any) -> str | None:
        """Where writes to a path go; None for what may be written as it is."""
        if isinstance(path, int) or not isinstance(path, str | bytes | os.PathLike):
            return None
        # Links are followed at the folder only: a link itself can be replaced.
        name = os.path.abspath(os.fsdecode(path))
        if name.startswith(self._left_alone):
            return None
        if name.startswith(self._temporary + os.sep) and not name.startswith(self._homes):
            return None
        return self.folder + name

    def current(self, path: Any) -> Any:
        """Where a path is read from: what was written instead of it, where there is such a thing."""
        target = self.target(path)
        if target is None:
            return path
        if self._is_there(target):
            return target
        if self._is_hidden(target):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), os.fsdecode(path))
        return path

    def is_visible(self, path: str) -> bool:
        """Whether the script sees something under an absolute path."""
        target = self.target(path)
        if target is None:
            return self._is_there(path)
        return self._is_there(target) or (not self._is_hidden(target) and self._is_there(path))

    def prepared(self, path: Any, keep: bool) -> Any:
        """Where to write a file, its folder made; with what it has so far if that is to be kept."""
        target = self.target(path)
        if target is None:
            return path
        name = os.path.abspath(os.fsdecode(path))
        if not self.is_visible(os.path.dirname(name)):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        self._make_folders(os.path.dirname(target))
        if keep and not self._is_there(target) and self.is_visible(name):
            with self._open(name, "rb") as old, self._open(target, "wb") as new:
                shutil.copyfileobj(old, new)
        return target

    def _is_hidden(self, target: str) -> bool:
        return bool(self.hidden) and any(target == name or target.startswith(name + os.sep) for name in self.hidden)

    def _is_there(self, path: str) -> bool:
        try:
            self._stat(path)
        except OSError:
            return False
        return True

    def _make_folders(self, path: str) -> None:
        if not self._is_there(path):
            self._make_folders(os.path.dirname(path))
            self._mkdir(path)

    def _watched_open(self, file: Any, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        if not isinstance(file, int):
            if any(letter in mode for letter in "wax+"):
                if "x" in mode and self.is_visible(os.path.abspath(os.fsdecode(file))):
                    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), os.fsdecode(file))
                file = self.prepared(file, keep="w" not in mode)
            else:
                self.on_open()
                file = self.current(file)
        return self._open(file, mode, *arguments, **options)

    def _opening(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def opened(path: Any, flags: int, *arguments: Any, **options: Any) -> Any:
            if options.get("dir_fd") is None:
                if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND):
                    path = self.prepared(path, keep=not flags & os.O_TRUNC)
                else:
                    path = self.current(path)
            return original(path, flags, *arguments, **options)

        return opened

    def _reading(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def read(path: Any = ".", *arguments: Any, **options: Any) -> Any:
            if options.get("dir_fd") is None:
                path = self.current(path)
            return original(path, *arguments, **options)

        return read

    def _touching(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """What changes a file without opening it acts on what the script has written, and leaves the user's alone."""

        def touched(path: Any, *arguments: Any, **options: Any) -> None:
            target = self.target(path) if options.get("dir_fd") is None else None
            if target is None:
                original(path, *arguments, **options)
            elif self._is_there(target):
                original(target, *arguments, **options)
            else:
                self.current(path)  # raises where it was deleted

        return touched

    def _linking(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def linked(source: Any, target: Any, *arguments: Any, **options: Any) -> None:
            is_absolute = os.path.isabs(os.fsdecode(source))
            original(
                self.current(source) if is_absolute else source,
                self.prepared(target, keep=False),
                *arguments,
                **options,
            )

        return linked

    def _making(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def made(path: Any, mode: int = 0o777, *arguments: Any, **options: Any) -> None:
            target = self.target(path)
            if target is None:
                original(path, mode, *arguments, **options)
                return
            name = os.path.abspath(os.fsdecode(path))
            if self.is_visible(name):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name)
            if not self.is_visible(os.path.dirname(name)):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
            self._make_folders(target)

        return made

    def _listing(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def listed(path: Any = ".") -> list[Any]:
            target = self.target(path)
            if target is None or not self._is_there(target):
                self.current(path)  # raises where it was deleted
                return [name for name in original(path) if not self._is_hidden_in(path, name)]
            real = [] if self._is_hidden(target) or not self._is_there(os.fsdecode(path)) else original(path)
            return list(dict.fromkeys([*original(target), *(n for n in real if not self._is_hidden_in(path, n))]))

        return listed

    def _is_hidden_in(self, folder: Any, name: Any) -> bool:
        if not self.hidden:
            return False
        target = self.target(os.path.join(os.fsdecode(folder), os.fsdecode(name)))
        return target is not None and self._is_hidden(target)

    def _scanning(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def scanned(path: Any = ".") -> Any:
            target = self.target(path)
            if target is None or not self._is_there(target):
                return original(self.current(path))
            new = {entry.name: entry for entry in original(target)}
            if not self._is_hidden(target) and self._is_there(os.fsdecode(path)):
                new = {entry.name: entry for entry in original(path)} | new
            return _Entries(list(new.values()))

        return scanned

    def _deleting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def deleted(path: Any, *arguments: Any, **options: Any) -> None:
            target = self.target(path) if options.get("dir_fd") is None else None
            if target is None:
                original(path, *arguments, **options)
                return
            if not self.is_visible(os.path.abspath(os.fsdecode(path))):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), os.fsdecode(path))
            if self._is_there(target):
                original(target)
            self.hidden.add(target)

        return deleted

    def _moving(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def moved(source: Any, target: Any, *arguments: Any, **options: Any) -> None:
            hides = self.target(source)
            new = self.prepared(target, keep=False)
            if hides is not None:  # a file of the user's stays where it is
                self.prepared(source, keep=True)
            original(hides or source, new)
            if hides is not None:
                self.hidden.add(hides)

        return moved

    def _remove_tree(self, path: Any, ignore_errors: bool = False, onerror: Any = None, **options: Any) -> None:
        try:
            self._hide_tree(path)
        except OSError:
            if not ignore_errors and onerror is None and options.get("onexc") is None:
                raise

    def _hide_tree(self, path: Any) -> None:
        target = self.target(path)
        if target is None:
            _plain_remove_tree(os.fsdecode(path))
            return
        if not self.is_visible(os.path.abspath(os.fsdecode(path))):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), os.fsdecode(path))
        if self._is_there(target):
            _plain_remove_tree(target)
        self.hidden.add(target)

    def _watch_saving(self) -> None:
        save = torch.save

        def saved(obj: object, f: Any, *arguments: Any, **options: Any) -> None:
            if not isinstance(f, str | os.PathLike):
                save(obj, f, *arguments, **options)
            elif self._may_save():
                target = self.prepared(f, keep=False)
                save(obj, target, *arguments, **options)
                self._count_saved(target)

        torch.save = saved
        try:
            import safetensors.torch
        except ImportError:
            return
        for name in ("save_file", "save_model"):
            setattr(safetensors.torch, name, self._saving(getattr(safetensors.torch, name)))

    def _saving(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def saved(what: Any, filename: Any, *arguments: Any, **options: Any) -> None:
            if self._may_save():
                target = self.prepared(filename, keep=False)
                original(what, target, *arguments, **options)
                self._count_saved(target)

        return saved

    def _may_save(self) -> bool:
        """Before training it may be a cache that the script wants to read; in training it is for its time only."""
        return not self.is_training or self._saved_left > 0

    def _count_saved(self, target: Any) -> None:
        if self.is_training:
            free = shutil.disk_usage(os.path.dirname(os.fsdecode(target))).free
            self._saved_left = min(self._saved_left - self._stat(target).st_size, free - SAVED_MOST)


class _Entries:
    """What `os.scandir` returns, of two folders."""

    def __init__(self, entries: list[os.DirEntry[str]]) -> None:
        self._entries = iter(entries)

    def __iter__(self) -> "_Entries":
        return self

    def __next__(self) -> os.DirEntry[str]:
        return next(self._entries)

    def __enter__(self) -> "_Entries":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._entries = iter(())


def _plain_remove_tree(path: str) -> None:
    for folder, folders, files in os.walk(path, topdown=False):
        for name in files:
            os.unlink(os.path.join(folder, name))
        for name in folders:
            os.rmdir(os.path.join(folder, name))
    os.rmdir(path)
