"""A folder that lies over the user's files: where each of their paths is read from, and where it is written to."""

import errno
import os
import shutil
import stat
import tempfile
from pathlib import Path
from typing import Any

LEFT_ALONE = ("/dev/", "/proc/", "/sys/")
MOST_LINKS = 40  # in one path, as in Linux


class ShadowTree:
    """What is written lies in a folder under the path that it was meant for; the rest is read where it is.

    It has to be made before Python's functions are replaced, and works with the real ones.

    Args:
        folder: That which lies over the others.
        homes: Folders whose files are the user's, though they be among temporary ones. Other temporary files are
            written as they are.
        own: The doctor's folders, written to as they are.
    """

    def __init__(self, folder: Path, homes: tuple[str, ...], own: tuple[str, ...]) -> None:
        self.folder = str(folder)
        self.hidden: set[str] = set()  # what the script has deleted
        self.links: dict[str, str] = {}  # that it has made, and the path that each of them stands for
        self.has_moved = False  # it works in a folder that it has made
        self._left_alone = (*LEFT_ALONE, *own)
        self._homes = tuple(home.rstrip(os.sep) + os.sep for home in homes)
        self._temporary = os.path.realpath(tempfile.gettempdir())
        self._stat, self._lstat, self._listdir, self._open = os.stat, os.lstat, os.listdir, open
        self._mkdir, self._rmdir, self._unlink, self._working_folder = os.mkdir, os.rmdir, os.unlink, os.getcwd

    def working_folder(self) -> str:
        """The one that the script means to be in."""
        return self._working_folder().removeprefix(self.folder) or os.sep

    def note_working_folder(self) -> None:
        """The script has gone to another one."""
        self.has_moved = self._working_folder().startswith(self.folder)

    def name(self, path: Any, follows: bool = True) -> str:
        """The absolute path that is meant, through links that the script has made; ``follows`` if it is one itself.

        The user's own links are not followed: a link can be replaced.
        """
        name = os.path.abspath(os.fsdecode(path)).removeprefix(self.folder) or os.sep
        for _ in range(MOST_LINKS if self.links else 0):
            inside = (link for link in self.links if name.startswith(link + os.sep) or (follows and name == link))
            if (link := next(inside, None)) is None:
                break
            name = self.links[link] + name[len(link) :]
        return name

    def target(self, path: Any, follows: bool = True) -> str | None:
        """Where writes to a path go; None for what may be written as it is."""
        if isinstance(path, int) or not isinstance(path, str | bytes | os.PathLike):
            return None
        name = self.name(path, follows)
        if name.startswith(self._left_alone):
            return None
        if name.startswith(self._temporary + os.sep) and not f"{name}/".startswith(self._homes):
            return None
        return self.folder + name

    def current(self, path: Any, follows: bool = True) -> Any:
        """Where a path is read from: what was written instead of it, where there is such a thing."""
        target = self.target(path, follows)
        if target is not None and self.is_there(target, follows):
            return target
        if target is not None and self.is_hidden(target):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), os.fsdecode(path))
        return self.as_users(path, follows)

    def as_users(self, path: Any, follows: bool = True) -> Any:
        """A path under which the system finds what is the user's."""
        is_elsewhere = self.has_moved or self.links
        return self.name(path, follows) if is_elsewhere and isinstance(path, str | bytes | os.PathLike) else path

    def require(self, path: Any, follows: bool = True) -> None:
        """Raise what the system would where the script sees nothing under a path."""
        if not self.is_visible(self.name(path, follows), follows):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), os.fsdecode(path))

    def is_visible(self, name: str, follows: bool = True) -> bool:
        """Whether the script sees something under an absolute path."""
        target = self.target(name, follows)
        if target is not None and self.is_there(target, follows):
            return True
        return (target is None or not self.is_hidden(target)) and self.is_there(name, follows)

    def is_there(self, path: str, follows: bool = True) -> bool:
        """Whether there is something under a path in truth."""
        try:
            (self._stat if follows else self._lstat)(path)
        except OSError:
            return False
        return True

    def is_hidden(self, target: str) -> bool:
        return bool(self.hidden) and any(target == name or target.startswith(name + os.sep) for name in self.hidden)

    def names_in(self, path: Any) -> list[str]:
        """What the script sees in a folder, of what was written and of what is the user's."""
        target = self.target(path)
        if target is None:
            return self._listdir(os.fsdecode(self.current(path)))
        name = self.name(path)
        written = self._listdir(target) if self.is_there(target) else []
        is_users = self.is_there(name) and not self.is_hidden(target)
        if not is_users and not self.is_there(target):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), os.fsdecode(path))
        users = [entry for entry in self._listdir(name) if not self.is_hidden(f"{target}/{entry}")] if is_users else []
        return list(dict.fromkeys([*written, *users]))

    def prepared(self, path: Any, keep: bool, follows: bool = True) -> Any:
        """Where to write a file, its folder made; with what it has so far if that is to be kept."""
        target = self.target(path, follows)
        if target is None:
            return self.current(path, follows)
        name = self.name(path, follows)
        self.require(os.path.dirname(name))
        self.make_folders(os.path.dirname(target))
        if keep and not os.path.isdir(name):
            self.keep(name, target)
        return target

    def make_folders(self, target: str) -> None:
        if not self.is_there(target):
            self.make_folders(os.path.dirname(target))
            self._mkdir(target)

    def hide(self, target: str) -> None:
        """What the script has deleted, or moved away, is not seen any more."""
        self.hidden.add(target)
        self.links.pop(target.removeprefix(self.folder), None)

    def remove_tree(self, path: str) -> None:
        """Delete a folder in truth, with all that is in it."""
        for entry in self._listdir(path):
            inside = os.path.join(path, entry)
            if stat.S_ISDIR(self._lstat(inside).st_mode):
                self.remove_tree(inside)
            else:
                self._unlink(inside)
        self._rmdir(path)

    def keep(self, name: str, target: str) -> None:
        """Copy what the script sees under a path, a file or all of a folder, as far as it was not written."""
        if name in self.links or not self.is_visible(name):
            return
        if os.path.isdir(name) or os.path.isdir(target):
            self.make_folders(target)
            for entry in self.names_in(name):
                self.keep(f"{name}/{entry}", f"{target}/{entry}")
        elif not self.is_there(target):
            with self._open(name, "rb") as old, self._open(target, "wb") as new:
                shutil.copyfileobj(old, new)
