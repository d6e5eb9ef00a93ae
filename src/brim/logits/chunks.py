"""Loss and gradients of a linear layer with cross entropy, chunk of tokens after chunk.

Nothing here waits for the device, and all shapes follow from those that come in: it can be captured as a CUDA graph.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from brim.logits.soft_cap import soft_capped

LOGITS = 1 << 25  # of a chunk: 256 MiB while they are worked on, and products that are large enough for a GPU
ROWS = 128  # a chunk has a multiple of so many tokens, which is what matrix products are fast with

Wanted = tuple[bool, ...]  # of hidden states, weight and bias: whether their gradients are


@dataclass(frozen=True)
class ChunkRule:
    """What the loss is, apart from its tensors; ``linear_cross_entropy`` explains each."""

    ignore_index: int = -100
    label_smoothing: float = 0.0
    reduction: str = "mean"
    scale: float = 1.0
    softcap: float | None = None
    chunk: int | None = None

    def rows(self, vocabulary: int) -> int:
        """Tokens of a chunk.

        >>> ChunkRule().rows(50257), ChunkRule().rows(10_000_000), ChunkRule(chunk=7).rows(50257)
        (640, 3, 7)
        """
        if self.chunk is not None:
            return self.chunk
        fitting = max(1, LOGITS // max(1, vocabulary))
        return fitting - fitting % ROWS if fitting > ROWS else fitting


@dataclass
class ChunkGradients:
    """Of hidden states, weight and bias; None for what is not wanted. Sums over chunks are in float32 at least."""

    hidden: Tensor | None = None
    weight: Tensor | None = None
    bias: Tensor | None = None

    def scale_(self, factor: Tensor) -> None:
        for gradient in (self.hidden, self.weight, self.bias):
            if gradient is not None:
                gradient.mul_(factor)

    def like(self, *tensors: Tensor | None) -> list[Tensor | None]:
        """Each in the type of the tensor that it is the gradient of."""
        found = (self.hidden, self.weight, self.bias)
        return [
            None if gradient is None or tensor is None else gradient.to(tensor.dtype)
            for gradient, tensor in zip(found, tensors, strict=True)
        ]


def loss_and_gradients(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, rule: ChunkRule, dtype: torch.dtype,
    wanted: Wanted,
) -> tuple[Tensor, Tensor, ChunkGradients]:  # fmt: skip
    """The loss, the share that one token has in it, and the gradients of the tokens' sum.

    ``dtype``: of the matrix products.
    """
    total = torch.zeros((), dtype=_exact(dtype), device=hidden.device)
    gradients = gradients_of(hidden, weight, bias, targets, rule, dtype, wanted, total=total)
    if rule.reduction == "sum":
        return total, torch.ones_like(total), gradients
    count = (targets != rule.ignore_index).sum()
    # Where nothing counts torch's mean is 0 / 0, and its gradients are zeros.
    return total / count, torch.where(count > 0, 1 / count, 0).to(total.dtype), gradients


def gradients_of(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, rule: ChunkRule, dtype: torch.dtype,
    wanted: Wanted, factor: Tensor | None = None, total: Tensor | None = None,
) -> ChunkGradients:  # fmt: skip
    """The gradients alone; ``factor`` is in them before they are rounded, and the loss is added to ``total``."""
    matrix, vector = weight.to(dtype), None if bias is None else bias.to(dtype)
    gradients = _zeros(hidden, weight, bias, dtype, wanted)
    for start, stop in _spans(len(hidden), rule.rows(len(weight))):
        rows, chosen = hidden[start:stop].to(dtype), targets[start:stop]
        counts = chosen != rule.ignore_index
        chosen = torch.where(counts, chosen, 0).unsqueeze(1)
        logits = rows @ matrix.t() if vector is None else torch.addmm(vector, rows, matrix.t())
        logits = logits.to(_exact(dtype))
        if rule.scale != 1.0 or rule.softcap is not None:
            logits = soft_capped(logits, rule.scale, rule.softcap)
        bent = logits if rule.softcap is not None and any(wanted) else None
        logits = torch.log_softmax(logits, 1)  # from here on logarithms of probabilities
        at_target = _at(logits, chosen)
        if total is not None:
            total += torch.where(counts, _losses(logits, at_target, rule), 0).sum()
        if any(wanted):
            slope = _slope(logits, at_target, chosen, rule, dtype, bent, factor)
            del logits, bent
            _add(gradients, slope, rows, matrix, counts.unsqueeze(1), start, stop)
            del slope
    return gradients


def _at(logs: Tensor, chosen: Tensor) -> Tensor:
    """Those of the targets. On the CPU torch looks whether there are such, and says it of indices, not of targets."""
    try:
        return logs.gather(1, chosen)
    except RuntimeError as error:
        wrong = re.match(r"index (-?\d+) is out of bounds", str(error))
        if wrong is None:
            raise
        raise IndexError(f"Target {wrong[1]} is out of bounds.") from None  # as F.cross_entropy does


def _losses(logs: Tensor, at_target: Tensor, rule: ChunkRule) -> Tensor:
    """Of each token."""
    losses = -at_target.squeeze(1)
    if rule.label_smoothing:
        losses = losses * (1 - rule.label_smoothing) - logs.sum(1) * (rule.label_smoothing / logs.shape[1])
    return losses


def _slope(
    logs: Tensor, at_target: Tensor, chosen: Tensor, rule: ChunkRule, dtype: torch.dtype, bent: Tensor | None,
    factor: Tensor | None,
) -> Tensor:  # fmt: skip
    """The derivative of the tokens' losses by their logits, in ``dtype``; ``logs`` are used up.

    That at the target is the small difference of two numbers near 1, so it is taken before it is rounded.
    """
    smoothing = rule.label_smoothing
    there = torch.exp(at_target) - (1 - smoothing) - smoothing / logs.shape[1]
    if bent is None and factor is None and not smoothing and logs.dtype != dtype and rule.scale == 1.0:
        slope = torch.exp(logs, out=torch.empty_like(logs, dtype=dtype))  # rounded as it is written
        return slope.scatter_(1, chosen, there.to(dtype))
    slope = logs.exp_()
    if smoothing:
        slope.sub_(smoothing / slope.shape[1])
    slope.scatter_(1, chosen, there)
    if bent is not None and rule.softcap is not None:
        slope.mul_(bent.div_(rule.softcap).square_().neg_().add_(1))  # of tanh: 1 - tanh ** 2
    if rule.scale != 1.0:
        slope.mul_(rule.scale)
    if factor is not None:
        slope.mul_(factor)
    return slope.to(dtype)


def _add(
    gradients: ChunkGradients, slope: Tensor, rows: Tensor, matrix: Tensor, counts: Tensor, start: int, stop: int
) -> None:
    """Tokens that do not count are left out here: there are fewer numbers in their rows than in their logits."""
    if gradients.hidden is not None:
        torch.mul(slope @ matrix, counts, out=gradients.hidden[start:stop])
    if gradients.weight is not None:
        gradients.weight += slope.t() @ (rows * counts)
    if gradients.bias is not None:
        gradients.bias += (counts.to(slope.dtype).t() @ slope).squeeze(0)


def _zeros(hidden: Tensor, weight: Tensor, bias: Tensor | None, dtype: torch.dtype, wanted: Wanted) -> ChunkGradients:
    exact = _exact(dtype)
    return ChunkGradients(
        torch.empty_like(hidden, dtype=dtype) if wanted[0] else None,
        torch.zeros_like(weight, dtype=exact) if wanted[1] else None,
        torch.zeros_like(bias, dtype=exact) if wanted[2] and bias is not None else None,
    )


def _spans(length: int, rows: int) -> Iterator[tuple[int, int]]:
    for start in range(0, length, rows):
        yield start, min(length, start + rows)


def _exact(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)
