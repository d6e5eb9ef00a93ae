"""The source of readings of this machine's GPUs."""

import shutil
from collections.abc import Callable

from brim.sensors.gpu_reading import GpuSource
from brim.sensors.nvidia_smi import COMMAND, NvidiaSmiGpus
from brim.sensors.nvml import NvmlGpus

HOW = "pip install nvidia-ml-py"


def open_gpus(
    nvml: Callable[[], GpuSource] = NvmlGpus, find: Callable[[str], str | None] = shutil.which
) -> tuple[GpuSource | None, str]:
    """The source that answers: NVML, else nvidia-smi, else None; and a line that says why where it is not NVML."""
    reason = f"nvidia-ml-py is not installed ({HOW})"
    try:
        return nvml(), ""
    except ImportError:
        pass
    except Exception as error:  # NVMLError, which only the module that may be missing can name
        reason = f"NVML does not answer ({error})"
    if find(COMMAND) is not None:
        return NvidiaSmiGpus(), f"GPUs by {COMMAND}, without SM, tensor, DRAM and PCIe activity: {reason}"
    return None, f"no GPU is shown: {reason}, and there is no {COMMAND}"
