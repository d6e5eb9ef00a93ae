"""Everything that ``brim watch`` shows of one moment."""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from brim.observe.running_jobs import JobSearch, RunningJob
from brim.sensors.gpu_reading import GpuReading, GpuSource
from brim.sensors.gpus import open_gpus
from brim.sensors.host_reading import HostReading, HostSensor


@dataclass(frozen=True)
class Snapshot:
    """GPUs by whom (``source``, empty where there is none), what is to be said about that, CPU and RAM, and jobs."""

    time: float
    source: str
    note: str
    gpus: tuple[GpuReading, ...]
    host: HostReading
    jobs: tuple[RunningJob, ...]

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "jobs": [job.as_json() for job in self.jobs]}


class Watcher:
    """Asks everyone. What is a mean since the last look is not known at the first one."""

    def __init__(
        self, places: Sequence[Path], gpus: tuple[GpuSource | None, str] | None = None, host: HostSensor | None = None
    ) -> None:
        self._source, self._note = open_gpus() if gpus is None else gpus
        self._host = host or HostSensor()
        self._jobs = JobSearch(places)

    def read(self) -> Snapshot:
        """This moment."""
        gpus = () if self._source is None else self._source.read()
        note = self._note
        if self._source is not None and not gpus:
            note = f"{self._source.name} shows no GPU" + (f"; {note}" if note else "")
        name = "" if self._source is None else self._source.name
        return Snapshot(time.time(), name, note, gpus, self._host.read(), tuple(self._jobs.read()))

    def close(self) -> None:
        """Nothing is asked any more."""
        if self._source is not None:
            self._source.close()
