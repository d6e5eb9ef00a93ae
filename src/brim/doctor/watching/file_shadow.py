"""Writes go elsewhere: a script that is watched leaves the user's files as they are.

Whatever Python opens for writing lies in a folder of the doctor's, under the same path; what was written there is read
from there. Folders that the script makes are made there, and what it deletes is only hidden from it. Weights are saved
there too while an observation lasts, because saving may be what takes the time, but not without end; in trials each
file is saved once. Files that other programs or native libraries write are not caught.
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

from brim.doctor.watching.shadow_tree import ShadowTree

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
        self.on_open = on_open
        self.tree = ShadowTree(folder, homes, own)
        self.is_training = False
        self._saves, self._saved_left = saves, SAVED_MOST
        self._open, self._unlink = builtins.open, os.unlink

    def install(self) -> None:
        builtins.open = io.open = self._watched_open
        self._watch_saving()
        for name in ("stat", "lstat", "access", "readlink", "listxattr", "getxattr", "statvfs"):
            if hasattr(os, name):  # some are Linux's
                setattr(os, name, self._reading(getattr(os, name), follows=name not in ("lstat", "readlink")))
        os.listdir, os.scandir = self._listing(os.listdir), self._scanning(os.scandir)
        os.chdir, os.getcwd = self._going(os.chdir), self.tree.working_folder
        os.open = self._opening(os.open)
        os.mkdir = self._making(os.mkdir)
        for name in ("remove", "unlink", "rmdir"):
            setattr(os, name, self._deleting(getattr(os, name), is_of_folders=name == "rmdir"))
        for name in ("rename", "replace"):
            setattr(os, name, self._moving(getattr(os, name)))
        for name in ("chmod", "utime", "chown", "setxattr", "truncate"):
            if hasattr(os, name):
                setattr(os, name, self._touching(getattr(os, name)))
        os.symlink, os.link = self._linking(os.symlink), self._copying()
        # These work on file descriptors below Python's names, past everything above.
        shutil.rmtree = self._remove_tree  # type: ignore[assignment]
        _hand_to_temporary_files(self._unlink, os.unlink)

    def _watched_open(self, file: Any, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        if not isinstance(file, int):
            if any(letter in mode for letter in "wax+"):
                if "x" in mode:
                    self._refuse_existing(file)
                file = self.tree.prepared(file, keep="w" not in mode)
            else:
                self.on_open()
                file = self.tree.current(file)
        return self._open(file, mode, *arguments, **options)

    def _refuse_existing(self, path: Any) -> None:
        if self.tree.is_visible(self.tree.name(path, follows=False), follows=False):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), os.fsdecode(path))

    def _opening(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def opened(path: Any, flags: int, *arguments: Any, **options: Any) -> Any:
            if options.get("dir_fd") is None:
                if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND):
                    path = self.tree.prepared(path, keep=not flags & os.O_TRUNC)
                else:
                    path = self.tree.current(path)
            return original(path, flags, *arguments, **options)

        return opened

    def _reading(self, original: Callable[..., Any], follows: bool) -> Callable[..., Any]:
        def read(path: Any, *arguments: Any, **options: Any) -> Any:
            if options.get("dir_fd") is None:
                path = self.tree.current(path, follows and options.get("follow_symlinks", True))
            return original(path, *arguments, **options)

        return read

    def _going(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def went(path: Any) -> None:
            original(self.tree.current(path))
            self.tree.note_working_folder()

        return went

    def _touching(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """What changes a file without opening it acts on what the script has written, and leaves the user's alone."""

        def touched(path: Any, *arguments: Any, **options: Any) -> None:
            target = self.tree.target(path) if options.get("dir_fd") is None else None
            if target is None:
                original(self.tree.current(path), *arguments, **options)
            elif self.tree.is_there(target):
                original(target, *arguments, **options)
            else:
                self.tree.require(path)

        return touched

    def _linking(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """A link of the script's is followed by name: through one in the folder, writes would go to where it leads."""

        def linked(source: Any, target: Any, *arguments: Any, **options: Any) -> None:
            self._refuse_existing(target)
            where = self.tree.prepared(target, keep=False, follows=False)
            name, leads_to = self.tree.name(target, follows=False), os.fsdecode(source)
            if where != target:
                self.tree.links[name] = os.path.normpath(os.path.join(os.path.dirname(name), leads_to))
                source = self.tree.folder + leads_to if os.path.isabs(leads_to) else source
            original(source, where, *arguments, **options)

        return linked

    def _copying(self) -> Callable[..., Any]:
        """In the place of a hard link: a second name for a file of the user's would be written to with it."""

        def copied(source: Any, target: Any, **options: Any) -> None:
            self._refuse_existing(target)
            self.tree.require(source)
            shutil.copyfile(source, target)

        return copied

    def _making(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def made(path: Any, mode: int = 0o777, *arguments: Any, **options: Any) -> None:
            target = self.tree.target(path)
            if target is None:
                original(self.tree.current(path), mode, *arguments, **options)
                return
            self._refuse_existing(path)
            self.tree.require(os.path.dirname(self.tree.name(path)))
            self.tree.make_folders(target)

        return made

    def _listing(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def listed(path: Any = ".") -> list[Any]:
            if self.tree.target(path) is None:
                return list(original(self.tree.current(path)))
            names = self.tree.names_in(path)
            return [os.fsencode(name) for name in names] if isinstance(path, bytes) else names

        return listed

    def _scanning(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def scanned(path: Any = ".") -> Any:
            target = self.tree.target(path)
            if target is None or not (self.tree.hidden or self.tree.is_there(target)):
                return original(self.tree.current(path))
            seen = set(self.tree.names_in(path))
            folders = [folder for folder in (self.tree.as_users(path), target) if self.tree.is_there(folder)]
            entries = {entry.name: entry for folder in folders for entry in original(folder) if entry.name in seen}
            return _Entries(list(entries.values()))

        return scanned

    def _deleting(self, original: Callable[..., Any], is_of_folders: bool) -> Callable[..., Any]:
        def deleted(path: Any, *arguments: Any, **options: Any) -> None:
            target = self.tree.target(path, follows=False) if options.get("dir_fd") is None else None
            if target is None:
                original(self.tree.current(path, follows=False), *arguments, **options)
                return
            self.tree.require(path, follows=False)
            self._refuse_deletion(path, is_of_folders)
            if self.tree.is_there(target, follows=False):
                original(target)
            self.tree.hide(target)

        return deleted

    def _refuse_deletion(self, path: Any, is_of_folders: bool) -> None:
        """Raise what the system would: a folder is deleted when it is empty, and not as a file."""
        name = self.tree.name(path, follows=False)
        is_folder = name not in self.tree.links and os.path.isdir(name)
        if is_of_folders and is_folder and self.tree.names_in(name):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), os.fsdecode(path))
        if is_of_folders != is_folder:
            number = errno.EISDIR if is_folder else errno.ENOTDIR
            raise OSError(number, os.strerror(number), os.fsdecode(path))

    def _moving(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def moved(source: Any, target: Any, *arguments: Any, **options: Any) -> None:
            old, tree = self.tree.target(source, follows=False), self.tree
            if old is None:
                original(tree.current(source, follows=False), tree.prepared(target, keep=False, follows=False))
                return
            tree.require(source, follows=False)
            new = tree.prepared(target, keep=False, follows=False)
            tree.make_folders(os.path.dirname(old))
            tree.keep(tree.name(source, follows=False), old)  # what is the user's stays where it is
            original(old, new)
            leads_to = tree.links.get(tree.name(source, follows=False))
            tree.hide(old)
            tree.links.pop(name := tree.name(target, follows=False), None)
            if leads_to is not None:
                tree.links[name] = leads_to

        return moved

    def _remove_tree(self, path: Any, ignore_errors: bool = False, onerror: Any = None, **options: Any) -> None:
        try:
            self._hide_tree(path)
        except OSError:
            if not ignore_errors and onerror is None and options.get("onexc") is None:
                raise

    def _hide_tree(self, path: Any) -> None:
        target = self.tree.target(path, follows=False)
        if target is None:
            self.tree.remove_tree(os.fsdecode(self.tree.current(path)))
            return
        self.tree.require(path)
        if self.tree.name(path, follows=False) in self.tree.links:
            raise OSError("Cannot call rmtree on a symbolic link")
        if self.tree.is_there(target):
            self.tree.remove_tree(target)
        self.tree.hide(target)

    def _watch_saving(self) -> None:
        torch.save, torch.load = self._saving(torch.save, "f"), self._loading(torch.load, "f")
        try:
            import safetensors.torch
        except ImportError:
            return
        for name in ("save_file", "save_model"):
            setattr(safetensors.torch, name, self._saving(getattr(safetensors.torch, name), "filename"))
        opened = self._loading(safetensors.safe_open, "filename")
        for module in (safetensors, safetensors.torch):
            setattr(module, "safe_open", opened)  # noqa: B010 - it was a class

    def _loading(self, original: Callable[..., Any], name: str) -> Callable[..., Any]:
        """What a library opens by itself, below Python's functions: its first argument, by its name."""

        def loaded(*arguments: Any, **options: Any) -> Any:
            if arguments:
                return original(self.tree.current(arguments[0]), *arguments[1:], **options)
            return original(**{**options, name: self.tree.current(options[name])})

        return loaded

    def _saving(self, original: Callable[..., Any], name: str) -> Callable[..., Any]:
        """The same for saving: its second argument."""

        def saved(*arguments: Any, **options: Any) -> None:
            path = arguments[1] if len(arguments) > 1 else options.get(name)
            if not isinstance(path, str | os.PathLike):
                original(*arguments, **options)
                return
            target = self.tree.prepared(path, keep=False)
            if self._may_save(target):
                in_place = (arguments[0], target, *arguments[2:]) if len(arguments) > 1 else arguments
                original(*in_place, **(options if len(arguments) > 1 else {**options, name: target}))
                self._count_saved(target)
            elif not self.tree.is_there(target):
                self._open(target, "wb").close()  # for a script that renames it next

        return saved

    def _may_save(self, target: Any) -> bool:
        """Before training it may be a cache that the script wants to read; in training it is for its time only, and
        where that is not asked for, what is there already is not saved again."""
        is_wanted = self._saves or not self.tree.is_there(target)
        return not self.is_training or (is_wanted and self._saved_left > 0)

    def _count_saved(self, target: Any) -> None:
        if self.is_training:
            free = shutil.disk_usage(os.path.dirname(os.fsdecode(target))).free
            self._saved_left = min(self._saved_left - os.stat(target).st_size, free - SAVED_MOST)


def _hand_to_temporary_files(unlink: Callable[..., Any], deleted: Callable[..., Any]) -> None:
    """Temporary files keep the function that deletes them among the defaults of their own."""
    for method in vars(tempfile._TemporaryFileCloser).values():  # type: ignore[attr-defined]
        if defaults := getattr(method, "__defaults__", None):
            method.__defaults__ = tuple(deleted if value is unlink else value for value in defaults)


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
