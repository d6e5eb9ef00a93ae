"""What is in this machine: GPUs as torch sees them, and the cores this process may really use."""

import math
import os
import platform
from dataclasses import dataclass

import torch

from brim.sensors.cgroup import cpu_grant


@dataclass(frozen=True)
class Gpu:
    """One visible GPU. ``index`` counts what CUDA_VISIBLE_DEVICES left visible."""

    index: int
    name: str
    memory: int


@dataclass(frozen=True)
class Inventory:
    """The machine, as plain data."""

    gpus: tuple[Gpu, ...]
    has_mps: bool
    cores: int
    python: str
    torch: str

    def facts(self) -> dict[str, str | int]:
        """The machine as names and values, for people to read."""
        gpus = [f"{gpu.name}, {gpu.memory / 2**30:.0f} GiB" for gpu in self.gpus]
        return {
            "GPUs": "; ".join(gpus) or "none",
            "CPU cores": self.cores,
            "Python": self.python,
            "torch": self.torch,
            "system": platform.platform(),
        }


def inventory() -> Inventory:
    """Look at the machine. CUDA_VISIBLE_DEVICES is obeyed, because torch obeys it."""
    gpus = []
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        gpus.append(Gpu(index, properties.name, properties.total_memory))
    return Inventory(
        gpus=tuple(gpus),
        has_mps=torch.backends.mps.is_available(),
        cores=usable_cores(),
        python=platform.python_version(),
        torch=torch.__version__,
    )


def usable_cores() -> int:
    """Cores this process may use: the least of what the machine has, its affinity mask and its cgroup's quota.

    ``os.cpu_count()`` alone is wrong in containers and under Slurm, where it counts the whole host.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    grant = cpu_grant()
    return cores if grant is None else max(1, min(cores, math.ceil(grant.cores)))
