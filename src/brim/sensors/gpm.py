"""How much of a card was at work between two looks: NVML's GPM counters, which cards have from Hopper on.

A look is a sample of running counters; what is told is the mean between the last sample and this one, which have to be
100 ms apart. MIG instances are left out: sampling one is known to spoil other answers of some drivers.
"""

import math
from dataclasses import dataclass
from typing import Any, Protocol

SM, TENSOR, DRAM, PCIE_OUT, PCIE_IN = 2, 5, 10, 20, 21  # NVML_GPM_METRIC_...: the same in all versions
METRICS = (SM, TENSOR, DRAM, PCIE_OUT, PCIE_IN)
VERSION = 1  # NVML_GPM_METRICS_GET_VERSION
MIB = 2**20


@dataclass(frozen=True)
class Activity:
    """Percent of what the card could do, and bytes a second over PCIe; None where there are no counters."""

    sm: float | None = None
    tensor: float | None = None
    dram: float | None = None
    pcie_in: float | None = None
    pcie_out: float | None = None


class Calls(Protocol):
    """NVML, which answers None to what it cannot."""

    module: Any

    def __call__(self, function: str, *arguments: Any) -> Any: ...


class ActivitySampler:
    """Keeps the last sample of each card."""

    def __init__(self, ask: Calls) -> None:
        self.ask = ask
        self._has_counters: dict[int, bool] = {}
        self._last: dict[int, Any] = {}

    def sample(self, index: int, handle: Any) -> Activity:
        """What the card did since the last call; nothing is known at the first one."""
        if index not in self._has_counters:
            support = self.ask("nvmlGpmQueryDeviceSupport", handle)
            self._has_counters[index] = bool(getattr(support, "isSupportedDevice", 0))
        if not self._has_counters[index]:
            return Activity()
        sample = self.ask("nvmlGpmSampleAlloc")
        if sample is None:
            return Activity()
        if not self._take(handle, sample):
            self.ask("nvmlGpmSampleFree", sample)
            return Activity()
        before, self._last[index] = self._last.get(index), sample
        if before is None:
            return Activity()
        found = self._between(before, sample)
        self.ask("nvmlGpmSampleFree", before)
        return found

    def close(self) -> None:
        """Free the samples."""
        for sample in self._last.values():
            self.ask("nvmlGpmSampleFree", sample)
        self._last.clear()

    def _take(self, handle: Any, sample: Any) -> bool:
        """Whether the counters could be read; asked without the wrapper, because an answer of None is a good one."""
        try:
            self.ask.module.nvmlGpmSampleGet(handle, sample)
        except self.ask.module.NVMLError:
            return False
        return True

    def _between(self, before: Any, after: Any) -> Activity:
        query = self.ask.module.c_nvmlGpmMetricsGet_t()
        query.version, query.numMetrics = VERSION, len(METRICS)
        query.sample1, query.sample2 = before, after
        for place, metric in enumerate(METRICS):
            query.metrics[place].metricId = metric
        try:
            self.ask.module.nvmlGpmMetricsGet(query)
        except self.ask.module.NVMLError:
            return Activity()
        told = {metric: _value(query.metrics[place]) for place, metric in enumerate(METRICS)}
        inwards, outwards = (None if mib is None else mib * MIB for mib in (told[PCIE_IN], told[PCIE_OUT]))
        return Activity(told[SM], told[TENSOR], told[DRAM], inwards, outwards)


def _value(metric: Any) -> float | None:
    """Each has a return code of its own; NaN stands for nothing measured."""
    return float(metric.value) if metric.nvmlReturn == 0 and math.isfinite(metric.value) else None
