"""What is known of a GPU at one moment, and the protocol of those who read it."""

from dataclasses import dataclass
from typing import Protocol

# The bits of NVML's "clocks event reasons" that make a card slower than its load asks for. The others are none:
# idle, clocks that somebody has set, a display.
THROTTLING = {
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x10: "sync boost",
    0x20: "thermal limit of the driver",
    0x40: "thermal limit of the hardware",
    0x80: "power brake",
}


@dataclass(frozen=True)
class GpuProcess:
    """A process that holds memory on a GPU, in bytes; ``name`` is empty where it may not be known."""

    pid: int
    memory: int | None
    name: str = ""


@dataclass(frozen=True)
class GpuReading:
    """One GPU, or one MIG instance of it, now. None: the card, the driver or the rights of this user do not tell.

    ``duty_cycle`` is the percentage of time in which any kernel ran, however small; ``sm``, ``tensor`` and ``dram`` are
    how much of the card was at work, in percent. Memory is in bytes, PCIe traffic in bytes a second.
    """

    index: int  # as the driver counts
    name: str = ""
    uuid: str = ""
    instance: int | None = None  # of MIG
    memory_used: int | None = None
    memory_total: int | None = None
    duty_cycle: int | None = None
    sm: float | None = None
    tensor: float | None = None
    dram: float | None = None
    power: float | None = None  # watts
    power_limit: float | None = None
    temperature: int | None = None  # degrees Celsius
    sm_clock: int | None = None  # MHz
    sm_clock_max: int | None = None
    throttling: tuple[str, ...] | None = None
    pcie_generation: int | None = None
    pcie_width: int | None = None
    pcie_in: float | None = None  # to the card
    pcie_out: float | None = None
    processes: tuple[GpuProcess, ...] | None = None
    trouble: str = ""  # why next to nothing is known

    @property
    def label(self) -> str:
        """
        >>> GpuReading(0).label, GpuReading(1, instance=3).label
        ('0', '1:3')
        """
        return str(self.index) if self.instance is None else f"{self.index}:{self.instance}"


class GpuSource(Protocol):
    """A source of readings: NVML, or nvidia-smi."""

    name: str

    def read(self) -> tuple[GpuReading, ...]:
        """All GPUs of the machine, now."""

    def utilization(self) -> list[tuple[str, int | None]]:
        """UUID and duty cycle of each GPU, by its number: as quickly as it can be asked."""

    def close(self) -> None:
        """Nothing is asked any more."""


def throttling_of(reasons: int | None) -> tuple[str, ...] | None:
    """What holds the clocks down, by the driver's bits.

    >>> throttling_of(0x24), throttling_of(0x1), throttling_of(None)
    (('power cap', 'thermal limit of the driver'), (), None)
    """
    return None if reasons is None else tuple(word for bit, word in THROTTLING.items() if reasons & bit)
