"""Gradients in blocks, as ranks send them to each other."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from brim.gradient_sums import gradient_of

BUCKET_BYTES = 8 << 20


class Bucket:
    """The gradients of some parameters in one block of memory: filled with sums, added up, and handed out again.

    How gradients are divided into buckets decides in which order numbers are added up. It is the same in every way to
    send them, so that all come to the same bits.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], memory: Tensor | None = None) -> None:
        self.parameters = list(parameters)
        numbers = sum(parameter.numel() for parameter in parameters)
        dtype = carried_as(parameters[0])
        if memory is None:
            self.flat = torch.empty(numbers, dtype=dtype, device=parameters[0].device)
        else:
            self.flat = memory[: numbers * dtype.itemsize].view(dtype)
        parts = torch.split(self.flat, [parameter.numel() for parameter in parameters])
        self.views = [part.view(p.shape) for part, p in zip(parts, parameters, strict=True)]
        self.missing: set[int] = set()  # whose gradients have not come yet

    def fill(self, weight: float) -> None:
        """Take the gradients of now, times ``weight``: as sums over so many samples."""
        if weight == 0.0:
            self.flat.zero_()  # not by multiplying: what is there may be infinite
            return
        filled = [(view, p.grad) for view, p in zip(self.views, self.parameters, strict=True) if p.grad is not None]
        if len(filled) < len(self.views):
            self.flat.zero_()
        if filled:
            torch._foreach_copy_([view for view, _ in filled], [gradient for _, gradient in filled])
        self.flat.mul_(weight)

    def hand_out(self, scale: float | Tensor, chosen: set[int]) -> None:
        """Let the chosen parameters have what is here, scaled, as their gradients."""
        self.flat.mul_(scale)
        pairs = [(p, view) for p, view in zip(self.parameters, self.views, strict=True) if id(p) in chosen]
        for parameter, _ in pairs:
            if parameter.grad is None:
                parameter.grad = torch.empty_like(parameter)
        if pairs:
            torch._foreach_copy_([gradient_of(p) for p, _ in pairs], [view for _, view in pairs])


def in_buckets(parameters: Sequence[nn.Parameter]) -> list[list[nn.Parameter]]:
    """Neighbours of one type together, up to the size of a bucket; the last ones first, as gradients come."""
    found: list[list[nn.Parameter]] = []
    filled = 0
    for parameter in reversed(parameters):
        size = bucket_bytes(parameter)
        alike = bool(found) and found[-1][0].dtype == parameter.dtype and found[-1][0].device == parameter.device
        if not alike or filled + size > BUCKET_BYTES:
            found.append([])
            filled = 0
        found[-1].append(parameter)
        filled += size
    return found


def carried_as(parameter: Tensor) -> torch.dtype:
    """The type that gradients are sent in: sums over a batch are too much for 16 bits."""
    return torch.float32 if parameter.element_size() < 4 else parameter.dtype


def bucket_bytes(parameter: Tensor) -> int:
    """What a gradient takes in a bucket."""
    return parameter.numel() * carried_as(parameter).itemsize
