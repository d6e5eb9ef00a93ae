"""Batches that are replayed are on the device already: copying one there gives the copy that was made before."""

from collections.abc import Callable, Iterable
from typing import Any

from torch import Tensor


class DeviceCopies:
    """Keeps what `Tensor.to` and `Tensor.cuda` return for some tensors, while it is installed."""

    def __init__(self) -> None:
        self._kept: dict[int, Tensor] = {}  # by id; kept alive here, so that no other tensor has it
        self._copies: dict[tuple[int, str, str], Any] = {}
        self._originals: dict[str, Any] = {}

    def install(self, tensors: Iterable[Tensor]) -> None:
        self._kept = {id(tensor): tensor for tensor in tensors}
        for name in ("to", "cuda"):
            self._originals[name] = Tensor.__dict__.get(name)
            setattr(Tensor, name, self._copying(getattr(Tensor, name), name))

    def remove(self) -> None:
        for name, original in self._originals.items():
            if original is None:  # inherited from the class that C++ made
                delattr(Tensor, name)
            else:
                setattr(Tensor, name, original)
        self._originals.clear()
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
