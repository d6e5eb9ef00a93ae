"""What a mean loss is a mean over, as something that can be counted in a batch.

A bare tensor that a loss function returns is a mean, and does not say over what. Samples are one possibility; labels
that are not ignored are the other common one: ``-100`` in the style of torch and Hugging Face, a padding token, a mask
of ones and zeros, each perhaps without the first position, which a causal model has nothing to predict from.
"""

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from brim.data import Batch, batch_length
from brim.data.batches.batch import named_tensors, tensor_at

IGNORED = -100
# In a rule, in the place of a value: whatever is below zero is ignored, as by ``labels >= 0``; or zero too (``> 0``).
NEGATIVE, NOT_POSITIVE = -math.inf, -sys.float_info.max
NAMES = {NEGATIVE: "negative", NOT_POSITIVE: "zero or negative"}
LABEL_WORDS = ("label", "target", "tgt", "answer")
MOST_RULES = 60


@dataclass(frozen=True)
class CountRule:
    """A count of a batch: its samples, or the entries of the tensor at ``path`` that are not ``ignored``.

    ``shift``: how many positions at the start of each sample are not counted. ``skips_empty``: a part that counts
    nothing is left out, for even its gradient is 0 / 0; the host has to look for that, and waits for the device.

    >>> CountRule(("labels",)).count({"labels": torch.tensor([[1, -100], [2, 3]])})
    tensor(3)
    """

    path: tuple[Any, ...] | None = None  # None: samples
    ignored: float = IGNORED  # NaN too: what is missing
    shift: int = 0
    skips_empty: bool = False
    sums: bool = False  # weights or lengths: their sum is what counts

    def __setstate__(self, state: dict[str, Any]) -> None:
        """From another rank: NaN equals itself only as the same object."""
        vars(self).update(state, ignored=math.nan if math.isnan(state["ignored"]) else state["ignored"])

    def count(self, batch: Batch) -> Tensor | int:
        """The count, on the device where the batch is; the number of samples where a batch lacks the tensor."""
        tensor = None if self.path is None else tensor_at(batch, self.path)
        if tensor is None:
            return batch_length(batch)
        return self.counted(tensor).sum()

    def by_sample(self, batch: Batch) -> list[float]:
        """The count of each sample."""
        tensor = None if self.path is None else tensor_at(batch, self.path)
        if tensor is None:
            return [1] * batch_length(batch)
        counted = self.counted(tensor)
        totals: list[float] = counted.reshape(len(counted), -1).sum(1).tolist()
        return totals

    def by_halves(self, batch: Batch) -> tuple[float, float]:
        """The counts of the first and the second half of the samples."""
        middle, by_sample = batch_length(batch) // 2, self.by_sample(batch)
        return sum(by_sample[:middle]), sum(by_sample[middle:])

    def counted(self, tensor: Tensor) -> Tensor:
        """Which entries count; of weights, how much."""
        if self.sums:
            return tensor
        shifted = tensor[:, self.shift :] if self.shift and tensor.dim() > 1 else tensor
        if self.ignored in NAMES:
            return shifted >= 0 if self.ignored == NEGATIVE else shifted > 0
        return ~shifted.isnan() if math.isnan(self.ignored) else shifted != self.ignored

    @property
    def uncounted(self) -> float:
        """A value that does not count."""
        if self.sums or self.ignored == NOT_POSITIVE:
            return 0
        return IGNORED if self.ignored == NEGATIVE else self.ignored

    @property
    def place(self) -> str:
        """The tensor, as code."""
        return "batch" + "".join(f"[{key!r}]" for key in self.path or ())

    def __str__(self) -> str:
        if self.path is None:
            return "samples"
        if self.sums:
            return f"the sum of {self.place}"
        late = ", the first position left out" if self.shift else ""
        return f"entries of {self.place} that are not {NAMES.get(self.ignored, f'{self.ignored:g}')}{late}"


SAMPLES = CountRule()
Kind = tuple[Any, ...]


def kind_of(batch: Batch) -> Kind:
    """What tensors a batch has, and where: batches of another kind may have another loss.

    >>> kind_of({"ids": torch.zeros(2, 3), "name": "a"})
    ((('ids',), 2),)
    """
    return tuple((path, tensor.dim()) for path, tensor in named_tensors(batch))


def possible_rules(batch: Batch, ignored_values: Sequence[int] = ()) -> list[CountRule]:
    """What a loss of this batch may be a mean over, the likeliest first; samples come first of all."""
    rules = [SAMPLES]
    for path, tensor in label_tensors(batch):
        if _is_column(tensor) or (tensor.is_floating_point() and bool((tensor >= 0).all())):
            rules.append(CountRule(path, sums=True))
        for value in _ignored_in(tensor, ignored_values):
            rules.append(CountRule(path, value))
            if tensor.dim() > 1 and tensor.shape[1] > 1:
                rules.append(CountRule(path, value, shift=1))
    return rules[:MOST_RULES]


def label_tensors(batch: Batch) -> list[tuple[tuple[Any, ...], Tensor]]:
    """Tensors of a batch that may hold labels or masks, the likeliest first: by name, then the last ones of a tuple."""
    length, named = batch_length(batch), list(named_tensors(batch))
    has_names = any(is_named_label(path) for path, _ in named)
    last = named[-1][0] if len(named) > 1 and not has_names else None
    found = [
        (path, tensor)
        for path, tensor in named
        if tensor.dim() and tensor.shape[0] == length and not tensor.is_sparse
        if _may_count(tensor) or _is_column(tensor) or path == last or is_named_label(path)
    ]
    found.reverse()
    return sorted(found, key=lambda place: not is_named_label(place[0]))


def is_named_label(path: tuple[Any, ...]) -> bool:
    """Whether a tensor at this place of a batch is called a label."""
    return any(word in str(key).lower() for key in path for word in LABEL_WORDS)


def _may_count(tensor: Tensor) -> bool:
    """Whole numbers, or a mask kept as real numbers."""
    return not tensor.is_complex() and (not tensor.is_floating_point() or is_mask(tensor))


def _is_column(tensor: Tensor) -> bool:
    """One number for each sample: its weight, or its length."""
    is_number = not tensor.is_complex() and tensor.dtype != torch.bool
    return is_number and tensor.numel() == len(tensor) and bool((tensor >= 0).all())


def is_mask(tensor: Tensor) -> bool:
    """Whether it holds zeros and ones alone."""
    return tensor.dtype == torch.bool or bool(((tensor == 0) | (tensor == 1)).all())


def _ignored_in(tensor: Tensor, known: Sequence[int]) -> Iterator[float]:
    """Values that a loss may leave out: the usual one, those that criteria name, and what samples are padded with."""
    values: dict[float, None] = {}
    if not tensor.is_floating_point() and tensor.dtype != torch.bool:
        values.update(dict.fromkeys([IGNORED, *known, -1]))
    if is_mask(tensor) or tensor.is_floating_point():
        values[0] = None
        if tensor.is_floating_point():
            values[math.nan] = None
    elif tensor.dim() > 1:
        values.update(dict.fromkeys([0, *(int(value) for value in tensor.reshape(len(tensor), -1)[:3, -1])]))
    if IGNORED in values:  # after those that are one value: where these are alike, the likelier
        values.update(dict.fromkeys(NAMES if 0 in values and not is_mask(tensor) else [NEGATIVE]))
    yield from values
