"""The duty cycle of one GPU, asked for again and again beside a training."""

import os
from collections.abc import Callable

from brim.sensors.gpu_reading import GpuSource
from brim.sensors.nvml import NvmlGpus
from brim.sensors.utilization import visible_utilization


class DutyCycleSensor:
    """NVML alone, which answers in less than a millisecond: nvidia-smi would be a process for every question.

    ``number``: of the GPU, as torch counts them.
    """

    def __init__(self, number: int, connect: Callable[[], GpuSource] = NvmlGpus) -> None:
        self.number = number
        self._connect = connect
        self._source: GpuSource | None = None
        self._is_silent = False

    def read(self) -> int | None:
        """Percent of the driver's last period in which any kernel ran; None where NVML does not tell."""
        if self._is_silent:
            return None
        try:
            self._source = self._source or self._connect()
            told = visible_utilization(self._source, os.environ.get("CUDA_VISIBLE_DEVICES"), self.number)
        except Exception:  # no package, no driver, a card that is lost: what NVML raises only its package can name
            told = None
        self._is_silent = told is None
        return told

    def close(self) -> None:
        """Nothing is asked any more."""
        source, self._source, self._is_silent = self._source, None, True
        if source is not None:
            source.close()
