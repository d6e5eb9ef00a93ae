"""Batches that loaders hand out, and the calls by which a script copies their tensors to a device.

A script keeps its CPU tensors, and may look at them as it likes. Only its own ``tensor.to(device)`` or
``tensor.cuda()`` on a tensor that came out of a loader can be answered in another way than by a plain copy.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import dataloader as torch_loaders
from torch.utils.weak import WeakTensorKeyDictionary

from brim.doctor.batch_contents import tensors_of


@dataclass(frozen=True)
class ColumnPlace:
    """Where a tensor comes from: the data set that its batch is of, by its id, and its number in the batch."""

    feed: int
    number: int


@dataclass(frozen=True)
class Asked:
    """A call that copies a tensor of a batch to a device.

    Attributes:
        tensor: As the loader handed it out.
        place: Where it comes from.
        device: To which it is copied.
        waits: Whether the script lets the host wait for the copy.
        call: The same call on another tensor, with further keywords.
    """

    tensor: Tensor
    place: ColumnPlace
    device: torch.device
    waits: bool
    call: Callable[..., Tensor]


Answer = Callable[[Asked], Tensor | None]
Listener = Callable[[Tensor, ColumnPlace], None]


class BatchMoves:
    """Knows which tensors loaders have handed out, and learns which of them the script copies, and whereto.

    Args:
        kind: Of devices that matter. Another one than CUDA's is for tests.
    """

    def __init__(self, kind: str = "cuda") -> None:
        self.answers: list[Answer] = []  # asked one after the other; a plain copy where none has one
        self.listeners: list[Listener] = []  # told every tensor that a loader hands out, before the script has it
        self._kind = kind
        self._handed: WeakTensorKeyDictionary = WeakTensorKeyDictionary()  # to their places
        self._devices: dict[int, dict[int, torch.device]] = {}

    def install(self) -> None:
        """Watch all loaders, and `Tensor.to` and `Tensor.cuda`."""
        moves, iterator = self, torch_loaders._BaseDataLoaderIter
        get_next = iterator.__next__

        def handing_out(self: Any) -> Any:
            batch = get_next(self)
            moves.hand_out(batch, id(self._dataset))
            return batch

        iterator.__next__ = handing_out  # type: ignore[method-assign]
        Tensor.to = self._copying(Tensor.to, asked_of_to)  # type: ignore[method-assign]
        Tensor.cuda = self._copying(Tensor.cuda, asked_of_cuda)  # type: ignore[method-assign]

    def hand_out(self, batch: Any, feed: int) -> None:
        """A batch came out of a loader."""
        for number, tensor in enumerate(tensors_of(batch)):
            if is_plain(tensor):
                place = self._handed[tensor] = ColumnPlace(feed, number)
                for listener in self.listeners:
                    listener(tensor, place)

    def devices(self, feed: int) -> dict[int, torch.device]:
        """To which device the script has copied tensors of a data set's batches so far, by their number."""
        return self._devices.get(feed, {})

    def _copying(
        self, original: Callable[..., Tensor], parse: Callable[[Any, Any], tuple[torch.device | None, bool]]
    ) -> Callable[..., Tensor]:
        def copied(tensor: Tensor, *arguments: Any, **options: Any) -> Tensor:
            place: ColumnPlace | None = self._handed.get(tensor) if tensor.is_cpu else None  # type: ignore[no-untyped-call]
            if place is None:
                return original(tensor, *arguments, **options)
            device, non_blocking = parse(arguments, options)
            if device is None or device.type != self._kind:
                return original(tensor, *arguments, **options)
            device = with_index(device)
            self._devices.setdefault(place.feed, {})[place.number] = device

            def call(source: Tensor, **more: Any) -> Tensor:
                if any(isinstance(one, bool) for one in arguments):  # it is said by position whether the host waits
                    more = {}
                return original(source, *arguments, **{**options, **more})

            asked = Asked(tensor, place, device, not non_blocking, call)
            found = next((found for answer in self.answers if (found := answer(asked)) is not None), None)
            return call(tensor) if found is None else found

        return copied


def is_plain(tensor: Tensor) -> bool:
    """Whether a tensor is an ordinary one on the CPU, of which it can be told whether it was written to."""
    return type(tensor) is Tensor and tensor.is_cpu and tensor.layout is torch.strided and not (
        tensor.requires_grad or tensor.is_inference()
    )  # fmt: skip


def with_index(device: torch.device) -> torch.device:
    """A device with its number: ``cuda`` is the current one."""
    if device.type == "cuda" and device.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return device


def asked_of_to(arguments: Any, options: Any) -> tuple[torch.device | None, bool]:
    """The device that `Tensor.to` is asked for, if any, and whether the host need not wait; all of its forms."""
    if arguments and isinstance(arguments[0], Tensor):
        return arguments[0].device, bool(options.get("non_blocking", True in arguments[1:2]))
    try:
        device, _, non_blocking, _ = torch._C._nn._parse_to(*arguments, **options)
    except (TypeError, RuntimeError):  # which the call itself will say better
        return None, False
    return device, non_blocking


def asked_of_cuda(arguments: Any, options: Any) -> tuple[torch.device | None, bool]:
    device = arguments[0] if arguments else options.get("device")
    non_blocking = bool(options.get("non_blocking", True in arguments[1:2]))
    if device is None:
        return torch.device("cuda"), non_blocking
    try:
        return torch.device("cuda", device) if isinstance(device, int) else torch.device(device), non_blocking
    except (TypeError, RuntimeError):
        return None, False
