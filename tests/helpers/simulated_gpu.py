"""A GPU and its host on a clock of their own: what is launched when, what runs when, and what a profiler would see."""

from collections import deque
from dataclasses import dataclass, field

from brim.doctor.trace.events import Events, Span

LAUNCH, RECORD, LATENCY, READ = 5e-6, 2e-6, 2e-6, 12e-6
HOLD = "hold"
MOST_QUEUED = 1000  # kernels; who launches more has to wait


@dataclass
class SimulatedGpu:
    """Kernels run one after another, copies beside them; the host waits only where it reads.

    It has what a recorder asks of events. ``seen`` is what a profiler would have recorded, without holds: a run has to
    be made without a recorder for that to be the truth.
    """

    host: float = 1000.0
    busy_until: float = 0.0
    copying_until: float = 0.0
    seen: Events = field(default_factory=Events)
    held: float = 0.0
    synchronised: int = 0
    records: int = 0
    given_back: int = 0
    _queue: deque[float] = field(default_factory=deque)  # when kernels begin that have not begun

    def clock(self) -> float:
        return self.host

    def python(self, seconds: float) -> None:
        self.host += seconds

    def launch(self, seconds: float, name: str = "kernel", takes: float = LAUNCH) -> None:
        self.host += takes
        while self._queue and self._queue[0] <= self.host:
            self._queue.popleft()
        if len(self._queue) >= MOST_QUEUED:
            self.host = self._queue.popleft()
        start = max(self.host + LATENCY, self.busy_until)
        self.busy_until = start + seconds
        self._queue.append(start)
        self.seen.kernels.append(Span(name, start, self.busy_until))

    def read(self) -> None:
        """What ``.item()`` does."""
        began, self.host = self.host, max(self.host, self.busy_until) + READ
        self.seen.syncs.append(Span("cudaStreamSynchronize", began, self.host))
        self.synchronised += 1

    def copy(self, seconds: float) -> tuple[float, float]:
        """To the device, on a stream of its own."""
        self.host += LAUNCH
        start = max(self.host + LATENCY, self.copying_until)
        self.copying_until = start + seconds
        self.seen.copies.append(Span("Memcpy HtoD (Pinned -> Device)", start, self.copying_until))
        return start, self.copying_until

    def wait_for_copy(self, end: float) -> None:
        """The computing stream does."""
        self.busy_until = max(self.busy_until, end)

    # What a recorder calls.

    def record(self) -> float:
        self.host += RECORD
        self.records += 1
        return max(self.host + LATENCY, self.busy_until)

    def is_past(self, event: float) -> bool:
        return event <= self.host

    def wait_for(self, event: float) -> None:
        self.host = max(self.host, event)
        self.synchronised += 1

    def seconds(self, start: float, end: float) -> float:
        return end - start

    def give_back(self, event: float) -> None:
        self.given_back += 1

    def hold(self, seconds: float) -> None:
        self.held += seconds
        self.launch(seconds, HOLD)

    def is_recordable(self) -> bool:
        return True
