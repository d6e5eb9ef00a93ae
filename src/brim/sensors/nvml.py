"""GPUs as NVML sees them, through the package nvidia-ml-py.

Every call may be unknown to the driver, not supported by the card or not allowed to this user, and a card may be lost
between two of them: what cannot be answered is None.
"""

from importlib import import_module
from typing import Any

from brim.sensors.gpm import Activity, ActivitySampler
from brim.sensors.gpu_reading import GpuProcess, GpuReading, throttling_of
from brim.sensors.processes import command_of

SM_CLOCK = 1  # NVML_CLOCK_SM
TEMPERATURE = 0  # NVML_TEMPERATURE_GPU
PCIE_OUT, PCIE_IN = 0, 1  # NVML_PCIE_UTIL_TX_BYTES, NVML_PCIE_UTIL_RX_BYTES
KIB = 1024


class NvmlCalls:
    """The module ``pynvml``, whose functions answer None instead of raising. ``module`` may be a double of it."""

    def __init__(self, module: Any) -> None:
        self.module = module

    def __call__(self, function: str, *arguments: Any) -> Any:
        """What the function of this name answers; None where there is none, or it cannot."""
        found = getattr(self.module, function, None)  # an older package may not have it
        if found is None:
            return None
        try:
            return found(*arguments)
        except (self.module.NVMLError, UnicodeDecodeError):
            return None

    def number(self, function: str, *arguments: Any) -> int | None:
        answer = self(function, *arguments)
        return answer if isinstance(answer, int) else None

    def text(self, function: str, *arguments: Any) -> str:
        answer = self(function, *arguments)
        return answer.decode("utf-8", "replace") if isinstance(answer, bytes) else answer or ""


class NvmlGpus:
    """All GPUs of the machine. Raises the module's NVMLError where there is no driver to talk to."""

    name = "NVML"

    def __init__(self, module: Any = None) -> None:
        self.module = import_module("pynvml") if module is None else module
        self.module.nvmlInit()
        self.ask = NvmlCalls(self.module)
        self._activity = ActivitySampler(self.ask)

    def read(self) -> tuple[GpuReading, ...]:
        """All GPUs, and instances of those that are divided by MIG."""
        found: list[GpuReading] = []
        for index in range(self.ask.number("nvmlDeviceGetCount") or 0):
            try:
                handle = self.module.nvmlDeviceGetHandleByIndex(index)
            except self.module.NVMLError as error:  # lost, without its power cable, or not ours
                found.append(GpuReading(index, trouble=str(error)))
                continue
            found += [self._reading(index, handle), *self._instances(index, handle)]
        return tuple(found)

    def utilization(self) -> list[tuple[str, int | None]]:
        """UUID and duty cycle of each GPU."""
        found = []
        for index in range(self.ask.number("nvmlDeviceGetCount") or 0):
            handle = self.ask("nvmlDeviceGetHandleByIndex", index)
            known = handle is not None
            uuid = self.ask.text("nvmlDeviceGetUUID", handle) if known else ""
            found.append((uuid, self._duty_cycle(handle) if known else None))
        return found

    def close(self) -> None:
        """Give back what NVML keeps for this process."""
        self._activity.close()
        self.ask("nvmlShutdown")

    def _reading(self, index: int, handle: Any) -> GpuReading:
        ask = self.ask
        used, total = self._memory(handle)
        activity = self._activity.sample(index, handle)
        pcie_in, pcie_out = self._traffic(handle, activity)
        power, limit = (ask.number(f"nvmlDeviceGet{name}", handle) for name in ("PowerUsage", "EnforcedPowerLimit"))
        return GpuReading(
            index, ask.text("nvmlDeviceGetName", handle), ask.text("nvmlDeviceGetUUID", handle),
            memory_used=used, memory_total=total, duty_cycle=self._duty_cycle(handle),
            sm=activity.sm, tensor=activity.tensor, dram=activity.dram,
            power=None if power is None else power / 1000, power_limit=None if limit is None else limit / 1000,
            temperature=ask.number("nvmlDeviceGetTemperature", handle, TEMPERATURE),
            sm_clock=ask.number("nvmlDeviceGetClockInfo", handle, SM_CLOCK),
            sm_clock_max=ask.number("nvmlDeviceGetMaxClockInfo", handle, SM_CLOCK),
            throttling=throttling_of(self._clock_reasons(handle)),
            pcie_generation=ask.number("nvmlDeviceGetCurrPcieLinkGeneration", handle),
            pcie_width=ask.number("nvmlDeviceGetCurrPcieLinkWidth", handle),
            pcie_in=pcie_in, pcie_out=pcie_out, processes=self._processes(handle),
        )  # fmt: skip

    def _instances(self, index: int, handle: Any) -> list[GpuReading]:
        """Of MIG, with what an instance has of its own: drivers do not say how busy one is."""
        modes = self.ask("nvmlDeviceGetMigMode", handle)
        if not modes or modes[0] != 1:
            return []
        found = []
        for number in range(self.ask.number("nvmlDeviceGetMaxMigDeviceCount", handle) or 0):
            instance = self.ask("nvmlDeviceGetMigDeviceHandleByIndex", handle, number)
            if instance is None:  # nothing at this place
                continue
            used, total = self._memory(instance)
            name, uuid = (self.ask.text(f"nvmlDeviceGet{what}", instance) for what in ("Name", "UUID"))
            processes = self._processes(instance)
            found.append(GpuReading(index, name, uuid, number, used, total, processes=processes))
        return found

    def _memory(self, handle: Any) -> tuple[int | None, int | None]:
        told = self.ask("nvmlDeviceGetMemoryInfo", handle)
        return (None, None) if told is None else (int(told.used), int(told.total))

    def _duty_cycle(self, handle: Any) -> int | None:
        told = self.ask("nvmlDeviceGetUtilizationRates", handle)
        return None if told is None else int(told.gpu)

    def _clock_reasons(self, handle: Any) -> int | None:
        """By the name of newer drivers, else by that of older ones."""
        reasons = self.ask.number("nvmlDeviceGetCurrentClocksEventReasons", handle)
        return self.ask.number("nvmlDeviceGetCurrentClocksThrottleReasons", handle) if reasons is None else reasons

    def _traffic(self, handle: Any, activity: Activity) -> tuple[float | None, float | None]:
        """Over PCIe; asked by itself only where the counters did not tell, since that waits 20 ms each time."""
        if activity.pcie_in is not None:
            return activity.pcie_in, activity.pcie_out
        told = [self.ask.number("nvmlDeviceGetPcieThroughput", handle, way) for way in (PCIE_IN, PCIE_OUT)]
        inwards, outwards = (None if number is None else float(number * KIB) for number in told)
        return inwards, outwards

    def _processes(self, handle: Any) -> tuple[GpuProcess, ...] | None:
        """Those that compute and those that draw; one that does both is counted once."""
        lists = [self.ask(f"nvmlDeviceGet{kind}RunningProcesses", handle) for kind in ("Compute", "Graphics")]
        if all(one is None for one in lists):
            return None
        memory: dict[int, int | None] = {}
        for process in (process for one in lists for process in one or ()):
            before, more = memory.get(process.pid), process.usedGpuMemory
            memory[process.pid] = more if before is None else max(before, more or 0)
        return tuple(GpuProcess(pid, used, command_of(pid)) for pid, used in memory.items())
