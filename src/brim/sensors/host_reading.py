"""What the CPU and the RAM of this machine do, within what the kernel grants."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from brim.sensors.cgroup import CpuGrant, cpu_grant, memory_limit

STATISTICS = Path("/proc/stat")
MEMORY = Path("/proc/meminfo")
IDLE = (3, 4)  # of the columns of /proc/stat: idle, and waiting for a disk


@dataclass(frozen=True)
class HostReading:
    """The machine now; None where the system does not tell.

    ``cores`` is what processes may use, by their affinity and the cgroup's quota; ``cpu`` is in percent of that since
    the last reading, and ``throttled`` the percentage of the kernel's periods that the quota cut short. Memory is in
    bytes, ``is_limited`` where a cgroup's limit counts and not the machine's.
    """

    cores: float
    machine_cores: int
    cpu: float | None = None
    load: float | None = None
    throttled: float | None = None
    memory_used: int | None = None
    memory_total: int | None = None
    is_limited: bool = False


class HostSensor:
    """Keeps the counters of the last reading."""

    def __init__(
        self,
        grant: Callable[[], CpuGrant | None] = cpu_grant,
        limit: Callable[[], tuple[int, int] | None] = memory_limit,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._grant, self._limit, self._clock = grant, limit, clock
        self._last: tuple[float, CpuGrant | None, tuple[int, int] | None] | None = None

    def read(self) -> HostReading:
        """Now, and since the last call: at the first one, how busy the CPU was is not known."""
        now, grant, ticks = self._clock(), self._grant(), cpu_ticks()
        last, self._last = self._last, (now, grant, ticks)
        machine = os.cpu_count() or 1
        allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else machine
        cpu = throttled = None
        if last is not None:
            then, grant_then, ticks_then = last
            cpu, throttled = _use_of_grant(grant_then, grant, now - then)
            if cpu is None and grant is None:
                cpu = _use_of_machine(ticks_then, ticks)
        used, total, is_limited = usable_memory(self._limit)
        return HostReading(
            min(allowed, grant.cores) if grant is not None else allowed, machine, cpu, _load(), throttled, used, total,
            is_limited,
        )  # fmt: skip


def cpu_ticks() -> tuple[int, int] | None:
    """(busy, all) of the machine since it was started; None where the system does not tell."""
    try:
        # The first eight columns: time of guests is within that of users.
        columns = [int(word) for word in STATISTICS.read_text().split("\n", 1)[0].split()[1:9]]
        return sum(columns) - sum(columns[place] for place in IDLE), sum(columns)
    except (OSError, ValueError, IndexError):
        return None


def usable_memory(limit: Callable[[], tuple[int, int] | None] = memory_limit) -> tuple[int | None, int | None, bool]:
    """(used, total) in bytes of the cgroup where that has less than the machine, else of the machine; and which."""
    used, total = memory_of_machine()
    limited = limit()
    if limited is not None and (total is None or limited[0] < total):
        return limited[1], limited[0], True
    return used, total, False


def memory_of_machine() -> tuple[int | None, int | None]:
    """(used, total) in bytes; what can be dropped again is not used."""
    try:
        fields = dict(line.split(":", 1) for line in MEMORY.read_text().splitlines() if ":" in line)
        total, available = (int(fields[name].split()[0]) * 1024 for name in ("MemTotal", "MemAvailable"))
    except (OSError, ValueError, KeyError, IndexError):
        return None, None
    return total - available, total


def _use_of_grant(before: CpuGrant | None, now: CpuGrant | None, seconds: float) -> tuple[float | None, float | None]:
    """Percent of the granted time that was used, and of the periods that were cut short."""
    if before is None or now is None:
        return None, None
    cpu = throttled = None
    if before.used is not None and now.used is not None and seconds > 0:
        cpu = 100 * (now.used - before.used) / (seconds * now.cores)
    if before.throttled is not None and now.throttled is not None:
        periods = (now.periods or 0) - (before.periods or 0)
        throttled = 100 * (now.throttled - before.throttled) / periods if periods > 0 else 0.0
    return cpu, throttled


def _use_of_machine(before: tuple[int, int] | None, now: tuple[int, int] | None) -> float | None:
    if before is None or now is None or now[1] <= before[1]:
        return None
    return 100 * (now[0] - before[0]) / (now[1] - before[1])


def _load() -> float | None:
    try:
        return os.getloadavg()[0]
    except (OSError, AttributeError):
        return None
