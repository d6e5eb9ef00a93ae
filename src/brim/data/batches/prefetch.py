"""Batches on the device before they are needed, copied while the device computes.

Overlap needs a stream of its own and page-locked memory to copy from, and both are easy to get wrong: most prefetchers
had a race. The rules that this one keeps:

1. Memory that the copy stream allocated is not reused before the stream that computes is done with it (record_stream).
2. One stream for all epochs: another one would strand the memory that was cached for the first.
3. The computing stream waits for the copy's event; nothing waits for the device on the host.
4. What fails ahead of time is raised in its turn, after the batches before it.
5. No batch is lost: none, one, a shorter last one, and a loop that is left early.
6. Any nesting of tensors; what is no tensor but can be moved is moved where it is used.
7. Asynchronous towards CUDA only.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from brim.arguments.known import known_arguments
from brim.data.batches.batch import Batch, as_device, cast_floats, leaves_of, map_leaves, move_data_to_device
from brim.data.times import FeedTimes
from brim.errors import CannotFit, ConfigError, a_type, first_line

ALIGNMENT = 64
AHEAD = 1


class DevicePrefetcher:
    """Hands out the batches of an iterator on a device, the next ones being copied meanwhile.

    Args:
        device: where batches are handed out.
        times: gets what waiting and copying takes.
        ahead: how many batches are copied before they are asked for.
        floats: the type that floating-point tensors are handed out in; None for their own.
        on_copy: is handed the events before and after each copy.

    >>> [int(batch.sum()) for batch in DevicePrefetcher("cpu")(iter([torch.ones(2), torch.ones(3)]))]
    [2, 3]
    """

    @known_arguments
    def __init__(
        self,
        device: str | torch.device,
        times: FeedTimes | None = None,
        ahead: int = AHEAD,
        floats: torch.dtype | None = None,
        on_copy: Callable[[Any, Any], None] | None = None,
    ) -> None:
        if hasattr(device, "__iter__") and not isinstance(device, str):
            raise ConfigError(
                f"device is {a_type(device)}; write brim.DevicePrefetcher('cuda')(iter(loader)): it is made "
                "for a device, and called with batches"
            )
        self.device = as_device(device)
        if self.device.type == "cuda" and not torch.cuda.is_available():
            raise ConfigError(f"device={str(device)!r} was asked for, and 0 GPUs are visible; use 'cpu'")
        if self.device.type == "cuda" and self.device.index is None:
            self.device = torch.device("cuda", torch.cuda.current_device())
        self.times = times or FeedTimes()
        self.ahead = ahead
        self.floats = floats
        self.on_copy = on_copy
        self._stream: torch.cuda.Stream | None = None
        self._slots: deque[_Slot] = deque()
        self._timed: deque[tuple[torch.cuda.Event, torch.cuda.Event]] = deque()

    @property
    def runs_ahead(self) -> bool:
        """Whether batches are read before they are asked for."""
        return self.device.type == "cuda"

    def __call__(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        """The same batches on the device."""
        moved = self._run_ahead(batches) if self.runs_ahead else self._moved(batches)
        return moved if self.floats is None else (cast_floats(batch, self.floats) for batch in moved)

    def _moved(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        here = self.device.type == "cpu"
        return (batch if here and _is_plainly_on_the_host(batch) else move_data_to_device(batch, self.device)
                for batch in batches)  # fmt: skip

    def _run_ahead(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        sent: deque[_Sent] = deque()
        ended: BaseException | None = None
        held: list[Batch] = []  # one that there was no memory for while others were on their way
        while True:
            while ended is None and len(sent) <= self.ahead:
                try:
                    batch = held.pop() if held else next(batches)
                except Exception as error:  # StopIteration among them
                    ended = error
                    break
                if not sent and is_there(batch, self.device):  # nothing to do, and no reason to run ahead
                    yield batch
                    continue
                try:
                    sent.append(self.send(batch))
                except Exception as error:
                    no_memory = isinstance(error, RuntimeError) and "out of memory" in str(error)
                    if no_memory and sent:  # those before it may leave room
                        held.append(batch)
                        break
                    ended = _too_large(error, self.device) if no_memory else error
            if sent:
                yield sent.popleft().receive()
            elif ended is None or isinstance(ended, StopIteration):
                return
            else:
                raise ended

    def send(self, batch: Batch) -> "_Sent":
        """Start copying a batch, whose memory may be written to again as soon as this returns."""
        outside = [leaf for leaf in tensors_of(batch) if leaf.device.type == "cpu"]
        if not outside:
            return _Sent(batch, self.device, [], None)
        if self._stream is None:
            self._stream = torch.cuda.Stream(self.device)
        began = time.perf_counter()
        slot = self._free_slot()
        pinned = slot.fill(outside, self.floats)
        self.times.pin += time.perf_counter() - began
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        with torch.cuda.stream(self._stream):
            start.record(self._stream)
            copies = [leaf.to(self.device, non_blocking=True) for leaf in pinned]
            end.record(self._stream)
        slot.copied = end
        self._timed.append((start, end))
        self._read_clocks()
        if self.on_copy is not None:
            self.on_copy(start, end)
        if any(leaf is source for leaf, source in zip(pinned, outside, strict=True)):
            # Page-locked already, and not ours: whoever made it may fill it anew when asked for the next batch. The
            # copy takes less than the step that was just launched, so this waits for nothing.
            end.synchronize()
        waiting = iter(copies)
        moved = map_leaves(
            lambda leaf: next(waiting) if isinstance(leaf, Tensor) and leaf.device.type == "cpu" else leaf, batch
        )
        return _Sent(moved, self.device, copies, end)

    def _free_slot(self) -> "_Slot":
        """A slot whose last copy is done; there is one more than batches can be on their way."""
        if len(self._slots) <= self.ahead + 1:
            self._slots.append(_Slot())
        else:
            self._slots.rotate(-1)
        slot = self._slots[-1]
        if slot.copied is not None:
            slot.copied.synchronize()
        return slot

    def _read_clocks(self) -> None:
        """Add up the copies that are over; none is waited for."""
        while self._timed and self._timed[0][1].query():
            start, end = self._timed.popleft()
            self.times.copy += start.elapsed_time(end) / 1e3


@dataclass
class _Sent:
    """A batch on its way: ``copies`` were allocated by the copy stream."""

    batch: Batch
    device: torch.device
    copies: list[Tensor]
    copied: torch.cuda.Event | None

    def receive(self) -> Batch:
        """The batch, for the stream that is current now."""
        stream = torch.cuda.current_stream(self.device)
        if self.copied is not None:
            stream.wait_event(self.copied)
            for copy in self.copies:
                copy.record_stream(stream)
        return move_data_to_device(self.batch, self.device)  # what is there already is left; the rest is no tensor


class _Slot:
    """Page-locked memory for one batch, used again when the copy out of it is done."""

    def __init__(self) -> None:
        self.memory: Tensor | None = None
        self.copied: torch.cuda.Event | None = None

    def fill(self, leaves: list[Tensor], floats: torch.dtype | None = None) -> list[Tensor]:
        """The same tensors in page-locked memory: as they are where they are, else in this slot.

        Floating-point ones take the type ``floats`` on the way: fewer bytes to copy, and none on the device to cast.
        """
        types = [floats if floats is not None and leaf.is_floating_point() else leaf.dtype for leaf in leaves]
        stays = [leaf.is_pinned() and leaf.dtype == dtype for leaf, dtype in zip(leaves, types, strict=True)]
        sizes = [0 if kept else _padded(leaf, dtype) for leaf, dtype, kept in zip(leaves, types, stays, strict=True)]
        if self.memory is None or self.memory.numel() < sum(sizes):
            self.memory = torch.empty(sum(sizes), dtype=torch.uint8, pin_memory=True)
        views, offset = [], 0
        for leaf, dtype, kept, size in zip(leaves, types, stays, sizes, strict=True):
            if kept:
                views.append(leaf)
                continue
            views.append(_view_like(self.memory[offset : offset + size], leaf, dtype).copy_(leaf))
            offset += size
        return views


def _too_large(error: Exception, device: torch.device) -> CannotFit:
    failed = CannotFit(
        f"a batch does not fit on {device} beside what is there ({first_line(error)}); use a smaller "
        "batch_size and gradient_accumulation_steps for the rest"
    )
    failed.__cause__ = error
    return failed


def is_there(batch: Batch, device: torch.device) -> bool:
    """Whether a batch is plainly on the GPU. Asked of every batch, so it looks at the common kinds only."""
    if type(batch) is Tensor:
        batch = (batch,)
    if not isinstance(batch, tuple | list):
        return False
    return all(type(leaf) is Tensor and leaf.is_cuda and leaf.get_device() == device.index for leaf in batch)


def _is_plainly_on_the_host(batch: Batch) -> bool:
    """The same for the CPU: there is nothing to move."""
    return type(batch) in (tuple, list) and all(type(leaf) is Tensor and leaf.is_cpu for leaf in batch)


def tensors_of(batch: Batch) -> list[Tensor]:
    """The tensors of a batch, in order."""
    return [leaf for leaf in leaves_of(batch) if isinstance(leaf, Tensor)]


def _padded(leaf: Tensor, dtype: torch.dtype) -> int:
    return -(-leaf.numel() * dtype.itemsize // ALIGNMENT) * ALIGNMENT


def _view_like(memory: Tensor, leaf: Tensor, dtype: torch.dtype) -> Tensor:
    """A tensor of this type and of the leaf's shape and layout over ``memory``."""
    typed = memory[: leaf.numel() * dtype.itemsize].view(dtype)
    return typed.as_strided(leaf.shape, dense_strides(leaf))


def dense_strides(leaf: Any) -> tuple[int, ...]:
    """The strides that ``.to(device)`` would give: the leaf's own order of dimensions (channels last, say), no gaps."""
    return tuple(torch.empty_like(leaf, device="meta").stride())
