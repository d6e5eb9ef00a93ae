"""Events in the stream of a device: put there by the host, read when they have passed, and used again."""

from typing import Any, Protocol

import torch

ASSUMED_CLOCK = 2e9  # cycles a second


class DeviceEvents(Protocol):
    """What a recorder needs of a device. None of it waits for the device but :meth:`wait_for`, where it is wanted."""

    def record(self) -> Any:
        """An event at the end of what the host has launched."""

    def is_past(self, event: Any) -> bool:
        """Whether the device has come to it."""

    def wait_for(self, event: Any) -> None:
        """Let the host wait until the device has come to it."""

    def seconds(self, start: Any, end: Any) -> float:
        """From one event to another, which are both past."""

    def give_back(self, event: Any) -> None:
        """An event that is not needed any more."""

    def hold(self, seconds: float) -> None:
        """Let the device wait for so long before it goes on, while the host does not."""

    def is_recordable(self) -> bool:
        """Whether an event can be put into the stream now."""


class CudaEvents:
    """Of the current stream of a GPU. Events are made once and used in turn."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._free: list[torch.cuda.Event] = []
        self._cycles: float | None = None  # a second

    def record(self) -> torch.cuda.Event:
        event = self._free.pop() if self._free else torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self.device))
        return event

    def is_past(self, event: torch.cuda.Event) -> bool:
        return bool(event.query())

    def wait_for(self, event: torch.cuda.Event) -> None:
        event.synchronize()

    def seconds(self, start: torch.cuda.Event, end: torch.cuda.Event) -> float:
        return float(start.elapsed_time(end)) / 1e3

    def give_back(self, event: torch.cuda.Event) -> None:
        self._free.append(event)

    def hold(self, seconds: float) -> None:
        if self._cycles is None:
            kilohertz = getattr(torch.cuda.get_device_properties(self.device), "clock_rate", None)
            self._cycles = kilohertz * 1e3 if kilohertz else ASSUMED_CLOCK
        with torch.cuda.device(self.device):
            torch.cuda._sleep(int(seconds * self._cycles))

    def is_recordable(self) -> bool:
        """Not into a graph that is being captured: it would be recorded anew with every replay."""
        return not torch.cuda.is_current_stream_capturing()
