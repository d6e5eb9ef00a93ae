"""Tensors that steps move though no optimizer steps them and they are no buffers: momentum encoders, a kept mean.

Which these are cannot be told by looking at the model, so their content is compared over eager steps. There may be
gigabytes that never move (the frozen part of a language model, data that a loss holds), so it is done by checksums.
"""

from typing import Any

import torch
from torch import Tensor, nn

from brim.engine.captured.host.host_state import host_state, tensors_in


class ContentWatch:
    """Checksums of the tensors that no optimizer steps and that are no buffers."""

    def __init__(self, model: nn.Module, loss_fn: Any) -> None:
        self._tensors = _candidates(model, loss_fn)
        self._sums = _checksums(list(self._tensors.values()))

    def moved(self) -> dict[str, Tensor]:
        """The tensors whose checksum has changed, by name."""
        now = _checksums(list(self._tensors.values()))
        return {
            name: tensor
            for (name, tensor), one, other in zip(self._tensors.items(), self._sums, now, strict=True)
            if one != other and not (one != one and other != other)
        }


def _candidates(model: nn.Module, loss_fn: Any) -> dict[str, Tensor]:
    """Frozen parameters, and every other tensor that the model, the loss or what their code names holds."""
    buffers = {id(buffer) for root in (model, loss_fn) if isinstance(root, nn.Module) for buffer in root.buffers()}
    found: dict[str, Tensor] = {}
    seen = set(buffers)
    for name, tensor in tensors_in(host_state(model, loss_fn)):
        if id(tensor) in seen or tensor.requires_grad or tensor.layout is not torch.strided or tensor.is_meta:
            continue
        seen.add(id(tensor))
        found[name] = tensor
    return found


def _checksums(tensors: list[Tensor]) -> list[float]:
    """A number for each that another content would hardly have; the device is asked once."""
    if not tensors:
        return []
    with torch.no_grad():
        sums = [_checksum(tensor.detach()).to(tensors[0].device) for tensor in tensors]
        return [float(value) for value in torch.stack(sums).tolist()]


def _checksum(tensor: Tensor) -> Tensor:
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    if not tensor.is_floating_point():
        return tensor.sum(dtype=torch.int64).double()
    wide = tensor if tensor.element_size() >= 4 else tensor.float()
    norm: Tensor = torch.linalg.vector_norm(wide, dtype=torch.float64)
    return norm
