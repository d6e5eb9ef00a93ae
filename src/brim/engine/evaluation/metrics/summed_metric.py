"""A metric that is a function of sums over all samples: the sums of parts add up, whoever computed them."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from brim.engine.evaluation.metrics.seen_batch import SeenBatch

Sums = list[float]


@dataclass(frozen=True)
class SummedMetric:
    """``part`` gives the sums of a batch, as a vector that stays on the device; ``finish`` the number, from their sum.

    A vector of another batch may be longer (a class that had not been seen): what is missing counts as zero.
    """

    name: str
    part: Callable[[SeenBatch], Tensor]
    finish: Callable[[Sums], float]
    higher_is_better: bool | None = None


def ratio(sums: Sums) -> float:
    """The first of two sums over the second; NaN where nothing was counted.

    >>> ratio([3.0, 4.0])
    0.75
    """
    total, count = sums
    return total / count if count else math.nan


def total_and_count(total: Tensor, count: Tensor | float) -> Tensor:
    """Two sums as a vector, in the longest format that the device has; the device is not asked for them.

    A number of the host is filled in by the device: a copy of it would make the host wait.
    """
    long = accumulation_dtype(total.device)
    if isinstance(count, Tensor):
        return torch.stack([total.to(long), count.to(total.device, long)])
    sums = torch.full((2,), count, dtype=long, device=total.device)
    sums[0] = total
    return sums


def sums_of_masks(*masks: Tensor) -> Tensor:
    """How many are True in each of some masks of the same shape, as a vector in the longest format of the device."""
    return torch.stack([mask.reshape(-1) for mask in masks]).sum(1, dtype=accumulation_dtype(masks[0].device))


def accumulation_dtype(device: torch.device) -> torch.dtype:
    """What sums are kept in: counts beyond 2^24 are not exact in single precision, which is all that MPS has."""
    return torch.float32 if device.type == "mps" else torch.float64


def added(sums: Tensor | None, part: Tensor) -> Tensor:
    """The sum of two vectors of sums; the shorter one is filled up with zeros."""
    if sums is None or not len(sums):
        return part
    if len(sums) < len(part):
        sums, part = part, sums
    if len(part) < len(sums):
        part = torch.nn.functional.pad(part, (0, len(sums) - len(part)))
    return sums + part


def sums_on_host(vectors: Sequence[Tensor]) -> list[Sums]:
    """The numbers of several vectors; the device is asked once."""
    numbers: Sums = torch.cat(list(vectors)).cpu().tolist() if vectors else []
    found, start = [], 0
    for vector in vectors:
        found.append(numbers[start : start + len(vector)])
        start += len(vector)
    return found
