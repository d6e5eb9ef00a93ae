"""The TCP connections between this process and the other ranks, by what the system says of open files.

gloo has no abort: a rank that shuts its connections down ends the waiting of those at their other ends.
"""

import json
import os
import socket
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

from torch.distributed.distributed_c10d import Store

OPEN_FILES = Path("/proc/self/fd")  # Linux; elsewhere nothing is found
Ends = tuple[str, str]
Connections = dict[str, Ends]
"""Names that the system never gives twice, with the addresses of both ends, this process's first."""


def open_connections() -> Connections:
    """All TCP connections of this process."""
    return {name: (_address(end.getsockname()), _address(end.getpeername())) for name, end in _open_ends()}


def between_ranks(found: Connections, store: Store, key: str, rank: int, world: int, timeout: timedelta) -> Connections:
    """Those of the connections that are another rank's as well, seen from its end. All ranks ask at the same time."""
    store.set(f"{key}-{rank}", json.dumps(sorted(found.values())))
    store.wait([f"{key}-{other}" for other in range(world)], timeout)
    others = {
        (own, peer) for other in set(range(world)) - {rank} for own, peer in json.loads(store.get(f"{key}-{other}"))
    }
    return {name: (own, peer) for name, (own, peer) in found.items() if (peer, own) in others}


def shut_down(connections: Connections) -> int:
    """End connections, so that the system tells whoever waits at the other end; how many there were."""
    number = 0
    for name, end in _open_ends():
        if name in connections:
            end.shutdown(socket.SHUT_RDWR)
            number += 1
    return number


def _address(of: tuple[str, int]) -> str:
    """The same from both ends, though one of them may see IPv4 as a part of IPv6."""
    return f"{of[0].removeprefix('::ffff:')} {of[1]}"


def _open_ends() -> Iterator[tuple[str, socket.socket]]:
    for file in OPEN_FILES.iterdir() if OPEN_FILES.is_dir() else ():
        try:
            name = str(file.readlink())
            if not name.startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(file.name))) as end:
                if end.family in (socket.AF_INET, socket.AF_INET6) and end.getpeername():
                    yield name, end
        except OSError:  # closed meanwhile, listening, or without another end
            continue
