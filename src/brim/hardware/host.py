"""What the host has left for loader processes."""

import os
import shutil
from pathlib import Path

from brim.sensors.cgroup import memory_limit
from brim.sensors.host_reading import memory_of_machine

SHARED_MEMORY = Path("/dev/shm")


def free_shared_memory() -> int | None:
    """Bytes left in /dev/shm, through which worker processes hand over their batches; None where there is none."""
    try:
        return shutil.disk_usage(SHARED_MEMORY).free
    except OSError:
        return None


def available_memory() -> int | None:
    """Bytes of RAM that processes may still take, within the cgroup's limit; None where that is unknown."""
    used, total = memory_of_machine()
    found = [] if used is None or total is None else [total - used]
    if (limited := memory_limit()) is not None:
        limit, used_of_it = limited
        found.append(max(0, limit - used_of_it))
    return min(found, default=None)


def open_file_limit() -> int | None:
    """How many files this process may have open."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


def process_memory(pid: int | str = "self") -> int | None:
    """Bytes of RAM that belong to a process, pages that it shares with others counted by its part."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    except (OSError, ValueError, StopIteration):
        return None


def cache_folder() -> Path:
    """Where what was measured on this machine is kept."""
    home = os.environ.get("BRIM_CACHE") or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "brim"
