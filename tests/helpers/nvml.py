"""A double of the module pynvml (package nvidia-ml-py), by its documented interface: without a driver, with any cards.

Its functions have the names, arguments, units and results of the real ones, and raise NVMLError for what a card does
not know: power in milliwatts, PCIe traffic in KiB a second, clocks in MHz, bits for what holds the clocks down. A card
without a value for a function does not support it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

GIB = 2**30


class NVMLError(Exception):
    """As in the module: one class for every code, all derived from this one."""


class NVMLError_NotSupported(NVMLError):
    def __str__(self) -> str:
        return "Not Supported"


class NVMLError_NotFound(NVMLError):
    def __str__(self) -> str:
        return "Not Found"


class NVMLError_GpuIsLost(NVMLError):
    def __str__(self) -> str:
        return "GPU is lost"


class NVMLError_NoPermission(NVMLError):
    def __str__(self) -> str:
        return "Insufficient Permissions"


@dataclass
class Card:
    """What a card answers, by the name of the function without ``nvmlDeviceGet``; an exception is raised."""

    answers: dict[str, Any]
    gpm: dict[int, float] | None = None  # by the number of the metric
    instances: list["Card"] | None = None  # of MIG
    lost: NVMLError | None = None


def h200() -> Card:
    """A busy card of the Hopper generation, which has the GPM counters."""
    return Card(
        {
            "Name": "NVIDIA H200", "UUID": "GPU-1111", "MemoryInfo": memory(61, 140),
            "UtilizationRates": SimpleNamespace(gpu=97, memory=40), "PowerUsage": 512_300,
            "EnforcedPowerLimit": 700_000, "Temperature": 66, "ClockInfo": 1755, "MaxClockInfo": 1980,
            "CurrentClocksEventReasons": 0x4, "CurrPcieLinkGeneration": 5, "CurrPcieLinkWidth": 16,
            "PcieThroughput": 1000, "MigMode": [0, 0],
            "ComputeRunningProcesses": [process(4242, 58 * GIB), process(17, None)], "GraphicsRunningProcesses": [],
        },
        gpm={2: 71.4, 5: 44.0, 10: 38.6, 20: 100.0, 21: 2000.0},
    )  # fmt: skip


def old_card() -> Card:
    """One that knows little: no power, no clocks, no counters; its name comes as bytes, as from older packages."""
    return Card({"Name": b"Tesla M60", "UUID": b"GPU-2222", "MemoryInfo": memory(1, 8), "PcieThroughput": 1000})


def divided_card() -> Card:
    """One that MIG divides into two instances, at places 0 and 2."""
    first = Card({"Name": "NVIDIA H200 MIG 1g.18gb", "UUID": "MIG-a", "MemoryInfo": memory(3, 16)})
    second = Card({"Name": "NVIDIA H200 MIG 3g.71gb", "UUID": "MIG-b", "MemoryInfo": memory(9, 70)})
    second.answers["ComputeRunningProcesses"] = [process(99, 8 * GIB)]
    whole = h200()
    del whole.answers["UtilizationRates"]
    whole.answers |= {"MigMode": [1, 1], "MaxMigDeviceCount": 3, "UUID": "GPU-3333"}
    whole.instances = [first, Card({}, lost=NVMLError_NotFound()), second]
    whole.gpm = None
    return whole


def memory(used: int, total: int) -> Any:
    return SimpleNamespace(used=used * GIB, total=total * GIB, free=(total - used) * GIB)


def process(pid: int, used: int | None) -> Any:
    return SimpleNamespace(pid=pid, usedGpuMemory=used)


@dataclass
class NvmlDouble:
    """The module. ``calls`` counts, ``samples`` is how many are allocated and not freed."""

    cards: list[Card]
    calls: list[str] = field(default_factory=list)
    samples: int = 0
    is_open: bool = False
    missing: Iterable[str] = ()  # functions that an older package does not have

    NVMLError = NVMLError

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("nvml"):
            if name in self.missing:
                raise AttributeError(name)
            self.calls.append(name)
        return object.__getattribute__(self, name)

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvmlDeviceGet") or name in self.missing:
            raise AttributeError(name)
        return lambda card, *arguments: answer(card, name.removeprefix("nvmlDeviceGet"))

    def nvmlInit(self) -> None:
        self.is_open = True

    def nvmlShutdown(self) -> None:
        self.is_open = False

    def nvmlDeviceGetCount(self) -> int:
        assert self.is_open
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Card:
        card = self.cards[index]
        if card.lost is not None:
            raise card.lost
        return card

    def nvmlDeviceGetMigDeviceHandleByIndex(self, card: Card, index: int) -> Card:
        assert card.instances is not None
        if (lost := card.instances[index].lost) is not None:
            raise lost
        return card.instances[index]

    def nvmlGpmQueryDeviceSupport(self, card: Card) -> Any:
        return SimpleNamespace(isSupportedDevice=int(card.gpm is not None))

    def nvmlGpmSampleAlloc(self) -> Any:
        self.samples += 1
        return SimpleNamespace(card=None)

    def nvmlGpmSampleGet(self, card: Card, sample: Any) -> None:
        if card.gpm is None:
            raise NVMLError_NotSupported
        sample.card = card

    def nvmlGpmSampleFree(self, sample: Any) -> None:
        self.samples -= 1

    def nvmlGpmMetricsGet(self, query: Any) -> Any:
        assert query.version == 1 and query.sample1 is not query.sample2
        told = query.sample2.card.gpm
        for metric in query.metrics[: query.numMetrics]:
            metric.nvmlReturn = 0 if metric.metricId in told else 3
            metric.value = told.get(metric.metricId, 0.0)
        return query

    def c_nvmlGpmMetricsGet_t(self) -> Any:
        metrics = [SimpleNamespace(metricId=0, nvmlReturn=0, value=0.0) for _ in range(210)]
        return SimpleNamespace(version=0, numMetrics=0, sample1=None, sample2=None, metrics=metrics)


def answer(card: Card, what: str) -> Any:
    """What the card says."""
    if what not in card.answers:
        raise NVMLError_NotSupported
    if isinstance(card.answers[what], Exception):
        raise card.answers[what]
    return card.answers[what]
