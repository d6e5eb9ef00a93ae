"""Methods of tensors that copy between devices, or wait for one: how often, from which line, and for how long."""

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from brim.doctor.observation import TensorCalls
from brim.doctor.watching.lines.source_lines import Place, shown, text_of, users_place
from brim.replaced import replaced

COPIES = ("to", "cuda", "cpu", "pin_memory")
READS = ("item", "tolist", "numpy", "__bool__", "__float__", "__int__", "nonzero")  # by the host, which waits


@dataclass
class _Site:
    calls: int = 0
    seconds: float = 0.0
    bytes: int = 0
    pinned: bool = False
    non_blocking: bool = False


class TensorHooks:
    """Watches copies and reads of tensors while it is installed."""

    def __init__(self) -> None:
        self._sites: dict[tuple[str, Place | None, str], _Site] = {}
        self._replaced = ExitStack()
        self._inside = False

    def install(self) -> None:
        changes = [(Tensor, name, self._watched(name, getattr(Tensor, name))) for name in (*COPIES, *READS)]
        self._replaced.enter_context(replaced(*changes))

    def remove(self) -> None:
        self._replaced.close()

    def seen(self, steps: int) -> tuple[TensorCalls, ...]:
        """Calls that have to do with another device than the CPU, or read a number on it; most expensive first."""
        found = [
            TensorCalls(
                method, shown(place), text_of(place), direction, site.calls / steps, site.seconds / steps,
                site.bytes / steps, site.pinned, site.non_blocking,
            )
            for (method, place, direction), site in self._sites.items()
        ]  # fmt: skip
        return tuple(sorted(found, key=lambda calls: -calls.seconds)[:20])

    def _watched(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        thread = threading.get_ident()  # a loader's thread may pin batches, which the loop does not wait for

        def call(tensor: Tensor, *arguments: Any, **options: Any) -> Any:
            if self._inside or threading.get_ident() != thread:
                return original(tensor, *arguments, **options)
            self._inside = True
            start = time.perf_counter()
            try:
                result = original(tensor, *arguments, **options)
            finally:
                self._inside = False
            self._note(name, tensor, result, time.perf_counter() - start, arguments, options)
            return result

        return call

    def _note(self, name: str, tensor: Tensor, result: Any, seconds: float, arguments: Any, options: Any) -> None:
        direction = direction_of(name, tensor, result)
        if direction is None:
            return
        site = self._sites.setdefault((name, users_place(), direction), _Site())
        site.calls += 1
        site.seconds += seconds
        site.bytes += tensor.nbytes
        if direction == "to device":
            site.pinned = tensor.is_pinned()
        site.non_blocking = bool(options.get("non_blocking", name == "to" and True in arguments[1:3]))


def direction_of(name: str, tensor: Tensor, result: Any) -> str | None:
    """Where data went; None where nothing left its device."""
    if torch.compiler.is_compiling():
        return None
    if name in READS:
        return "to host" if tensor.device.type != "cpu" else ("none" if name == "item" else None)
    if name == "pin_memory":
        return "pinned" if result is not tensor else None
    if not isinstance(result, Tensor) or result.device == tensor.device:
        return None
    return "to host" if result.device.type == "cpu" else "to device"
