"""What the kernel grants the group of processes that this one is in: a container, a Slurm job, a systemd slice."""

from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")
NO_LIMIT = 2**60  # version 1 says "no limit" with a number of this size


@dataclass(frozen=True)
class CpuGrant:
    """Cores' worth of time that the group may use, and its running counters: seconds used, periods, those cut short."""

    cores: float
    used: float | None
    periods: int | None
    throttled: int | None


def cpu_grant(root: Path = ROOT, own: Path = OWN) -> CpuGrant | None:
    """The tightest limit on the way from this process's group to the root; None without one."""
    found = [grant for folder in _folders(root, own) if (grant := _grant(folder)) is not None]
    return min(found, key=lambda grant: grant.cores, default=None) or _grant_of_version_1(root)


def cpu_statistics(root: Path = ROOT, own: Path = OWN) -> Path | None:
    """The file in which the kernel counts what this process's group used of the CPU; None where there is none."""
    files = [folder / "cpu.stat" for folder in (*_folders(root, own), root / "cpu")]
    return next((file for file in files if file.exists()), None)


def memory_limit(root: Path = ROOT, own: Path = OWN) -> tuple[int, int] | None:
    """(limit, used) in bytes, without files that can be dropped again, where the least is left; None without a limit.

    A group shares the limits of those around it, which others may have filled.
    """
    names = ("memory.max", "memory.current", "inactive_file")
    found = [pair for folder in _folders(root, own) if (pair := _memory(folder, *names)) is not None]
    old = _memory(root / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
    return min(found, key=lambda pair: pair[0] - pair[1], default=None) or old


def _folders(root: Path, own: Path) -> list[Path]:
    """This process's group and those around it, as far as they can be seen from here."""
    path = next((line[3:] for line in _lines(own) if line.startswith("0::")), "/")
    folder = root / path.strip("/")
    if ".." in folder.parts or not folder.is_dir():  # of another name space
        folder = root
    return [folder, *(parent for parent in folder.parents if parent.is_relative_to(root))]


def _grant(folder: Path) -> CpuGrant | None:
    try:
        quota, period = (int(word) for word in (folder / "cpu.max").read_text().split())
        cores = quota / period
    except (OSError, ValueError, ZeroDivisionError):  # not this version, or "max": no limit
        return None
    told = _table(folder / "cpu.stat")
    used = told.get("usage_usec")
    return CpuGrant(cores, None if used is None else used / 1e6, told.get("nr_periods"), told.get("nr_throttled"))


def _grant_of_version_1(root: Path) -> CpuGrant | None:
    try:
        quota, period = (int((root / "cpu" / f"cpu.cfs_{name}_us").read_text()) for name in ("quota", "period"))
    except (OSError, ValueError):
        return None
    if quota <= 0 or period <= 0:
        return None
    told = _table(root / "cpu" / "cpu.stat")
    try:
        used = int((root / "cpuacct" / "cpuacct.usage").read_text()) / 1e9
    except (OSError, ValueError):
        used = None
    return CpuGrant(quota / period, used, told.get("nr_periods"), told.get("nr_throttled"))


def _memory(folder: Path, limit_name: str, used_name: str, droppable: str) -> tuple[int, int] | None:
    try:
        limit, used = (int((folder / name).read_text()) for name in (limit_name, used_name))
    except (OSError, ValueError):  # not this version, or "max"
        return None
    if limit >= NO_LIMIT:
        return None
    return limit, max(0, used - _table(folder / "memory.stat").get(droppable, 0))


def _table(path: Path) -> dict[str, int]:
    words = [line.split() for line in _lines(path)]
    return {pair[0]: int(pair[1]) for pair in words if len(pair) == 2 and pair[1].isdigit()}


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(errors="replace").splitlines()
    except OSError:
        return []
