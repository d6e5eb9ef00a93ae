"""What more GPUs would bring, as plain data that can say what it rests on."""

from dataclasses import asdict, dataclass
from typing import Any

from brim.hardware.links import Link

# What users of DataParallel told us that they expect of it, by GPUs.
EXPECTED_OF_DATA_PARALLEL = {2: (1.8, 1.9), 4: (3.2, 3.6), 8: (5.5, 6.5)}
FORECAST, GIVEN, MEASURED = "forecast", "given", "measured"  # where the step time of one GPU is from


@dataclass(frozen=True)
class Scaled:
    """One way to train on so many GPUs: "single", "dp" (DataParallel), "ddp" or "fsdp" (FSDP2).

    ``seconds`` are those of a step, ``exchange`` the part of them in which GPUs wait for each other. ``launch_bound``:
    the host launches more slowly than the GPU computes. ``fits`` is None where memory was not forecast; where it is
    False, the time is that of a GPU which had the memory.
    """

    gpus: int
    strategy: str
    share: int
    micro_batch: int
    slices: int
    fits: bool | None
    reserved: int | None
    seconds: float
    exchange: float
    samples_per_second: float
    speed_up: float
    launch_bound: bool

    @property
    def efficiency(self) -> float:
        """Of each GPU, beside one that trains alone."""
        return self.speed_up / self.gpus

    @property
    def expected(self) -> tuple[float, float] | None:
        """The speed-up that users expect here, where they told."""
        return EXPECTED_OF_DATA_PARALLEL.get(self.gpus) if self.strategy == "dp" else None

    def as_json(self) -> dict[str, Any]:
        expected = None if self.expected is None else list(self.expected)
        return {**asdict(self), "efficiency": self.efficiency, "expected": expected}


@dataclass(frozen=True)
class SpeedUp:
    """A forecast for several numbers of GPUs; the first row is one GPU alone.

    ``source`` says where the step time of one GPU is from: "measured" here, "given" by the user, or "forecast".
    ``host_seconds`` is what the host takes to launch that step.
    """

    device: str
    batch_size: int
    accumulation: int
    precision: str
    link: Link
    source: str
    host_seconds: float
    rows: tuple[Scaled, ...]

    def row(self, gpus: int, strategy: str = "ddp") -> Scaled:
        """The row of so many GPUs; of one, there is one for all strategies."""
        return next(row for row in self.rows if row.gpus == gpus and row.strategy in (strategy, "single"))

    @property
    def notes(self) -> tuple[str, ...]:
        """What was measured and what is assumed, a sentence each."""
        return tuple(note for note in (self._step(), self._link(), *self._ways(), self._launching()) if note)

    def as_json(self) -> dict[str, Any]:
        return {
            "device": self.device, "batch_size": self.batch_size, "accumulation": self.accumulation,
            "precision": self.precision, "link": self.link.as_json(), "source": self.source,
            "host_seconds": self.host_seconds, "rows": [row.as_json() for row in self.rows], "notes": list(self.notes),
        }  # fmt: skip

    def _step(self) -> str:
        if self.source == MEASURED:
            return f"step: measured here for each share, on {self.device}; others are taken to be like it"
        if self.source == GIVEN:
            return "step: that of one GPU as given; those of smaller shares follow from a rough forecast"
        return "step: a rough forecast, may be off by a factor of two (better: --step-ms, --measure)"

    def _link(self) -> str:
        speed = f"{self.link.bandwidth / 1e9:,.3g} GB/s one way, {1e6 * self.link.latency:,.3g} us a hop"
        known = "measured" if self.link.measured else "assumed, not measured (better: --link)"
        return f"link: {self.link.name}, {speed}: {known}"

    def _ways(self) -> list[str]:
        shown = {row.strategy for row in self.rows}
        notes = []
        if "ddp" in shown:
            notes.append("DDP: as brim does it, gradients sent in buckets of 8 MiB while they are computed")
        if "fsdp" in shown:
            notes.append("FSDP2: as torch does it; 80 % of what it sends is taken to hide behind computing")
        if "dp" in shown:
            notes.append("DP: DataParallel, one process for all GPUs; expected is what users told us they expect of it")
        if any(row.fits is False for row in self.rows):
            notes.append("fits no: the time is that of a GPU which had the memory")
        return notes

    def _launching(self) -> str:
        if self.rows[0].launch_bound:
            return (
                f"launch-bound: launching takes {1e3 * self.host_seconds:,.3g} ms whatever the share; "
                "capturing the step may bring more"
            )
        first = next((row.gpus for row in self.rows if row.launch_bound), None)
        return "" if first is None else f"from {first} GPUs on the host's launching decides, not the GPU's computing"
