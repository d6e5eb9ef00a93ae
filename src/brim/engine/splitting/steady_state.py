"""State that a forward pass moves whatever the data is: once for a batch, however many micro-batches it is split into.

Spectral norm's vectors and momentum encoders follow the weights alone. Each micro-batch begins with the state of
before, so all of them compute with the same one, and it is moved once, as for the whole batch.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn


class SteadyState:
    """The buffers and frozen parameters of some modules; a buffer that is None until a forward pass fills it too."""

    def __init__(self, modules: Sequence[nn.Module]) -> None:
        self._places: list[tuple[dict[str, Any], str]] = [
            (holder, name)
            for module in modules
            for holder in (module._buffers, module._parameters)
            for name, tensor in holder.items()
            if (holder is module._buffers if tensor is None else not tensor.requires_grad)
        ]
        self._kept: list[tuple[Tensor | None, Tensor | None]] = []

    def take(self) -> None:
        """Copy the state; called before the first micro-batch of a batch."""
        now = [holder[name] for holder, name in self._places]
        if [id(tensor) for tensor, _ in self._kept] != [id(tensor) for tensor in now]:
            self._kept = [(tensor, None if tensor is None else tensor.detach().clone()) for tensor in now]
            return
        with torch.no_grad():
            for tensor, copied in self._kept:
                if tensor is not None and copied is not None:
                    copied.copy_(tensor)

    def restore(self) -> None:
        """Restore it; called before each of the other micro-batches."""
        for (holder, name), (tensor, copied) in zip(self._places, self._kept, strict=True):
            if holder[name] is not tensor:
                holder[name] = tensor
            if tensor is not None and copied is not None:
                with torch.no_grad():
                    tensor.detach().copy_(copied)
