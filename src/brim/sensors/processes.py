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


def python_processes() -> list[int]:
    """Processes of this user (root: of all) in which Python runs; empty where the system has no /proc.

    A server has thousands of processes with many files each: looking at those of all of them would take a second.
    """
    try:
        entries = [entry for entry in os.scandir(PROC) if entry.name.isdigit()]
    except OSError:
        return []
    found = []
    for entry in entries:
        try:
            program = Path(entry.path, "exe").readlink()
        except OSError:  # gone meanwhile, of another user, or of the kernel
            continue
        if "python" in program.name.lower():
            found.append(int(entry.name))
    return sorted(found)
