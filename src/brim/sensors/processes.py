"""Processes of this machine, as far as this user may see them."""

import os
from pathlib import Path

PROC = Path("/proc")


def command_of(pid: int) -> str:
    """The command line of a process; empty where it is gone, of another user, or the system does not tell.

    >>> command_of(-1)
    ''
    """
    try:
        words = (PROC / str(pid) / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    except OSError:
        return ""
    first = os.path.basename(words[0])  # noqa: PTH119 - bytes, of any encoding
    return b" ".join([first, *words[1:]]).decode("utf-8", "replace")


def open_files(pid: int) -> list[Path]:
    """The regular files that a process has open; empty where that may not be known."""
    found = []
    try:
        for link in os.scandir(PROC / str(pid) / "fd"):
            try:
                target = str(Path(link.path).readlink())
            except OSError:  # closed meanwhile
                continue
            if target.startswith("/") and not target.endswith(" (deleted)"):
                found.append(Path(target))
    except OSError:
        return []
    return found


def own_processes() -> list[int]:
    """Processes of this user; empty where the system has no /proc."""
    try:
        entries = [entry for entry in os.scandir(PROC) if entry.name.isdigit()]
    except OSError:
        return []
    user, found = os.geteuid(), []
    for entry in entries:
        try:
            is_own = user == 0 or entry.stat().st_uid == user
        except OSError:  # gone meanwhile
            continue
        if is_own:
            found.append(int(entry.name))
    return sorted(found)
