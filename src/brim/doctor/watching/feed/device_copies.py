"""Batches that are replayed are on the device already: copying one there gives the copy that was made before."""

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any

from torch import Tensor

from brim.replaced import replaced


class DeviceCopies:
    """Keeps what `Tensor.to` and `Tensor.cuda` return for some tensors, while it is installed."""

    def __init__(self) -> None:
        self._kept: dict[int, Tensor] = {}  # by id; kept alive here, so that no other tensor has it
        self._copies: dict[tuple[int, str, str], Any] = {}
        self._replaced = ExitStack()

    def install(self, tensors: Iterable[Tensor]) -> None:
        self._kept = {id(tensor): tensor for tensor in tensors}
        changes = [(Tensor, name, self._copying(getattr(Tensor, name), name)) for name in ("to", "cuda")]
        self._replaced.enter_context(replaced(*changes))

    def remove(self) -> None:
        self._replaced.close()
        self._kept.clear()
        self._copies.clear()

    def _copying(self, original: Callable[..., Any], name: str) -> Callable[..., Any]:
        def copied(tensor: Tensor, *arguments: Any, **options: Any) -> Any:
            if id(tensor) not in self._kept:
                return original(tensor, *arguments, **options)
            asked = (id(tensor), name, repr(arguments) + repr(sorted(options.items())))
            if asked not in self._copies:
                self._copies[asked] = original(tensor, *arguments, **options)
            return self._copies[asked]

        return copied
