"""The connections between this process and others, by what the system says of open files."""

import os
import socket
from pathlib import Path

OPEN_FILES = Path("/proc/self/fd")  # Linux; elsewhere nothing is found
Sockets = set[tuple[int, str]]


def open_sockets() -> Sockets:
    """The sockets that this process has open: their numbers, and names that are never given twice."""
    found: Sockets = set()
    for file in OPEN_FILES.iterdir() if OPEN_FILES.is_dir() else ():
        try:
            target = str(file.readlink())
        except OSError:  # closed meanwhile
            continue
        if target.startswith("socket:"):
            found.add((int(file.name), target))
    return found


def cut(sockets: Sockets) -> int:
    """End connections, so that the system tells whoever waits at the other end; how many there were."""
    number = 0
    for descriptor, _ in sockets & open_sockets():  # numbers of closed files are given to others
        try:
            with socket.socket(fileno=os.dup(descriptor)) as end:
                if end.family in (socket.AF_INET, socket.AF_INET6) and end.getpeername():
                    end.shutdown(socket.SHUT_RDWR)
                    number += 1
        except OSError:  # it listens, or has no other end any more
            continue
    return number
