"""What the system did to this process meanwhile: garbage collection, throttling, waiting for disks."""

import gc
import os
import resource
import time
from pathlib import Path

from brim.doctor.watching.meters import Meters
from brim.sensors.cgroup import cpu_statistics

TICKS = os.sysconf("SC_CLK_TCK")


class HostCounters:
    """Keeps the meters of what happens to the process without its asking."""

    def __init__(self, meters: Meters) -> None:
        self.meters = meters
        self._collecting_since = 0.0
        self._throttling = cpu_statistics()

    def install(self) -> None:
        gc.callbacks.append(self._on_collection)

    def read(self) -> None:
        """Bring those up to date that have to be asked for. It takes some ten microseconds."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        self.meters.cpu = usage.ru_utime + usage.ru_stime
        self.meters.major_faults = usage.ru_majflt
        self.meters.io_wait = io_wait_seconds()
        self.meters.in_line = in_line_seconds()
        self.meters.throttled = throttled_seconds(self._throttling)

    def _on_collection(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._collecting_since = time.perf_counter()
        elif self._collecting_since:
            self.meters.garbage += time.perf_counter() - self._collecting_since
            self.meters.collections += 1
            self._collecting_since = 0.0


def io_wait_seconds(pid: int | str = "self") -> float:
    """Seconds that a process waited for disks; 0 where the kernel does not count them."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[39]) / TICKS  # delayacct_blkio_ticks, the 42nd of all
    except (OSError, ValueError, IndexError):
        return 0.0


def in_line_seconds() -> float:
    """Seconds that this thread was ready to run and had no core; 0 where the kernel does not count them."""
    try:
        return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


def throttled_seconds(file: Path | None) -> float:
    """Seconds in which a cgroup was kept from running because it had used up its share of the CPU."""
    if file is None:
        return 0.0
    try:
        fields = dict(line.split() for line in file.read_text().splitlines())
    except (OSError, ValueError):
        return 0.0
    if "throttled_usec" in fields:
        return int(fields["throttled_usec"]) / 1e6
    return int(fields.get("throttled_time", 0)) / 1e9  # the first version of cgroups counts nanoseconds
