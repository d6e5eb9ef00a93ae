"""Files of a run folder, read without trust: never more than is needed, and never one that is no file."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from brim.record.json_object import json_object

MOST_BYTES = 1 << 22  # of a file that is read whole; those that brim writes are smaller
MOST_LINE = 1 << 20
TAIL_BYTES = 1 << 16


def open_regular(path: Path) -> BinaryIO | None:
    """The file, or None where it is missing, may not be read, or is a folder, a pipe or a device."""
    try:
        # Without waiting: a pipe that nobody writes to would never open.
        number = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except (OSError, ValueError):
        return None
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        return None
    return os.fdopen(number, "rb")


def is_there(path: Path) -> bool:
    """Whether there is anything of this name, as far as this user may know."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def is_endless(path: Path) -> bool:
    """Whether reading it may never end: a pipe or a device."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def read_text(path: Path, most: int = MOST_BYTES) -> str:
    """The text of a small file; empty where it cannot be read, or is larger than such a file can be."""
    file = open_regular(path)
    if file is None:
        return ""
    with file:
        try:
            content = file.read(most + 1)
        except OSError:
            return ""
    return "" if len(content) > most else content.decode("utf-8", errors="replace")


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file; empty where there is none."""
    return json_object(read_text(path)) or {}


def lines_of(path: Path) -> Iterator[bytes]:
    """The lines of a file of any size, one at a time."""
    file = open_regular(path)
    if file is None:
        return
    with file:
        try:
            while line := file.readline(MOST_LINE):
                yield line
        except OSError:  # the disk, or a network that is gone
            return


def first_object(path: Path) -> dict[str, Any]:
    """The JSON object of the first line; empty where it is none."""
    return json_object(next(lines_of(path), b"")) or {}


def last_object(path: Path) -> dict[str, Any]:
    """That of the last line that is one; empty where none is."""
    return next(_from_the_end(path, TAIL_BYTES), {})


def last_objects(path: Path, most: int = TAIL_BYTES) -> list[dict[str, Any]]:
    """The JSON objects of the last lines of a file; a line that is not one (half written) is passed over."""
    return list(_from_the_end(path, most))[::-1]


def _from_the_end(path: Path, most: int) -> Iterator[dict[str, Any]]:
    """The same, the last one first: whoever needs only that one does not take the others apart."""
    file = open_regular(path)
    if file is None:
        return
    with file:
        try:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - most))
            content = file.read(most)
        except OSError:
            return
    lines = content.split(b"\n")[1 if size > most else 0 :]
    for line in reversed(lines):
        if (found := json_object(line)) is not None:
            yield found
