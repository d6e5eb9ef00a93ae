"""The events of a Chrome trace, sorted by what they are."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from brim.intervals import Interval

# Marks of the doctor's own, and torch's mark of a loader's next batch.
STEP, FORWARD, FLOOR = "brim::step", "brim::forward", "brim::floor"
END = "brim::end"  # the device has done what was launched
LOADER = "enumerate(DataLoader)"
# Calls in which the host waits for the device until it is done.
SYNC_CALLS = (
    "cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cuCtxSynchronize", "cuStreamSynchronize",
    "cuEventSynchronize", "hipStreamSynchronize", "hipDeviceSynchronize", "hipEventSynchronize",
)  # fmt: skip
ALLOCATIONS = (
    "cudaMalloc", "cudaFree", "cuMemCreate", "cuMemRelease", "cuMemMap", "cuMemUnmap", "hipMalloc", "hipFree",
)  # fmt: skip
BLOCKING_COPIES = ("cudaMemcpy", "hipMemcpy")  # those that are not called ...Async


@dataclass(frozen=True)
class Span:
    """An event that has a length. Times are in seconds."""

    name: str
    start: float
    end: float
    thread: int = 0
    device: int = 0

    @property
    def interval(self) -> Interval:
        return (self.start, self.end)

    @property
    def seconds(self) -> float:
        return self.end - self.start


@dataclass
class Events:
    """A trace by kinds of events."""

    steps: list[float] = field(default_factory=list)  # moments at which an optimizer step ended
    end: float | None = None
    forwards: list[float] = field(default_factory=list)  # moments at which a forward pass began
    floors: list[Span] = field(default_factory=list)
    data: list[Span] = field(default_factory=list)
    operators: list[Span] = field(default_factory=list)
    kernels: list[Span] = field(default_factory=list)
    copies: list[Span] = field(default_factory=list)  # on the device, any direction
    syncs: list[Span] = field(default_factory=list)  # of the host
    allocations: list[Span] = field(default_factory=list)  # of the host: memory asked of the driver, and given back


def read_events(file: Path) -> Events:
    """The events of a trace that torch's profiler exported."""
    return sort_events(json.loads(file.read_text())["traceEvents"])


def sort_events(raw: Iterable[dict[str, Any]]) -> Events:
    """Events as the Chrome trace has them (microseconds, ``ph`` X for what has a length), by kinds."""
    events = Events()
    for event in raw:
        if event.get("ph") != "X":
            continue
        start = float(event["ts"]) / 1e6
        thread = event.get("tid", 0)
        span = Span(
            str(event["name"]),
            start,
            start + float(event.get("dur", 0)) / 1e6,
            thread if isinstance(thread, int) else 0,
            _device_of(event),
        )
        _place(events, str(event.get("cat", "")), span)
    events.steps.sort()
    events.forwards.sort()
    return events


def _device_of(event: dict[str, Any]) -> int:
    device = event.get("args", {}).get("device", 0)
    return device if isinstance(device, int) else 0


def _place(events: Events, category: str, span: Span) -> None:
    if category == "user_annotation":
        _place_annotation(events, span)
    elif category == "cpu_op":
        events.operators.append(span)
    elif category in ("kernel", "gpu_memset"):
        events.kernels.append(span)
    elif category == "gpu_memcpy":
        events.copies.append(span)
    elif category in ("cuda_runtime", "cuda_driver"):
        if is_wait(span.name):
            events.syncs.append(span)
        elif span.name.startswith(ALLOCATIONS):
            events.allocations.append(span)


def is_wait(call: str) -> bool:
    """Whether the host waits for the device in a call of the runtime.

    >>> is_wait("cudaStreamSynchronize"), is_wait("cudaMemcpyAsync"), is_wait("cudaMemcpy")
    (True, False, True)
    """
    return call.startswith(SYNC_CALLS) or (call.startswith(BLOCKING_COPIES) and "Async" not in call)


def _place_annotation(events: Events, span: Span) -> None:
    if span.name == STEP:
        events.steps.append(span.start)
    elif span.name == END:
        events.end = span.start
    elif span.name == FORWARD:
        events.forwards.append(span.start)
    elif span.name == FLOOR:
        events.floors.append(span)
    elif span.name.startswith(LOADER):
        events.data.append(span)


def is_to_device(copy: Span) -> bool:
    """Whether a copy of the device's goes from the host to it.

    >>> is_to_device(Span("Memcpy HtoD (Pageable -> Device)", 0, 1)), is_to_device(Span("Memcpy DtoD", 0, 1))
    (True, False)
    """
    return "HtoD" in copy.name


def is_to_host(copy: Span) -> bool:
    """Whether it goes the other way."""
    return "DtoH" in copy.name


def is_pageable(copy: Span) -> bool:
    """Whether the host's side is ordinary memory, which the driver has to copy once more."""
    return "Pageable" in copy.name
