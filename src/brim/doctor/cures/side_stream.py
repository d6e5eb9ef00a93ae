"""Copies to CUDA devices that run beside what is computed there."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class BegunCopy:
    """A copy of a tensor on a device, and the event after which it is complete."""

    copy: Tensor
    done: torch.cuda.Event


class SideStream:
    """Begins copies on a stream of their own, one for each device and for the whole process."""

    def __init__(self) -> None:
        # A stream that is made anew (for an epoch, say) would leave the memory of the one before unused.
        self._streams: dict[torch.device, torch.cuda.Stream] = {}
        self._to = Tensor.to  # torch's own: the one that scripts call may be answered by what is copied here

    def begin(self, tensor: Tensor, device: torch.device) -> BegunCopy:
        """Begin to copy a tensor. From page-locked memory the host does not wait; from other memory it does, for the
        copy and not for what the device computes."""
        if device not in self._streams:
            self._streams[device] = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        stream = self._streams[device]
        with torch.cuda.stream(stream):
            copy = self._to(tensor, device, non_blocking=True)
            done = stream.record_event()
        return BegunCopy(copy, done)

    def finish(self, begun: BegunCopy, host_waits: bool) -> Tensor:
        """The copy, for use on the current stream.

        Args:
            begun: What `begin` returned.
            host_waits: Whether the script may write into the source as soon as this returns.
        """
        current = torch.cuda.current_stream(begun.copy.device)
        current.wait_event(begun.done)
        # The allocator would hand the memory out again as soon as the stream that it came from is done with it.
        begun.copy.record_stream(current)
        if host_waits:
            begun.done.synchronize()
        return begun.copy
