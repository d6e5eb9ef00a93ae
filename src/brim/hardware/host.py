"""What the host has left for loader processes."""

import os
import shutil
from pathlib import Path

SHARED_MEMORY = Path("/dev/shm")
MEMORY = Path("/proc/meminfo")
CGROUP_STATISTICS = Path("/sys/fs/cgroup/memory.stat")
CGROUP_MEMORY = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current"))


def free_shared_memory() -> int | None:
    """Bytes left in /dev/shm, through which worker processes hand over their batches; None where there is none."""
    try:
        return shutil.disk_usage(SHARED_MEMORY).free
    except OSError:
        return None


def available_memory() -> int | None:
    """Bytes of RAM that processes may still take, within the cgroup's limit; None where nobody says."""
    found = []
    try:
        fields = dict(line.split(":", 1) for line in MEMORY.read_text().splitlines() if ":" in line)
        found.append(int(fields["MemAvailable"].split()[0]) * 1024)
    except (OSError, ValueError, KeyError):  # not Linux
        pass
    try:
        limit, current = (int(file.read_text()) for file in CGROUP_MEMORY)
        found.append(max(0, limit - max(0, current - _droppable())))
    except (OSError, ValueError):  # no cgroup, or "max"
        pass
    return min(found) if found else None


def _droppable() -> int:
    """Files that were read and can be dropped again: the cgroup counts them as in use, and they are in nobody's way."""
    try:
        lines = CGROUP_STATISTICS.read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("inactive_file "))
    except (OSError, ValueError, IndexError, StopIteration):
        return 0


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
