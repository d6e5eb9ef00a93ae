"""What a mean loss is a mean over, as something that can be counted in a batch.

A bare tensor that a loss function returns is a mean, and does not say over what. Samples are one possibility; labels
that are not ignored are the other common one: ``-100`` in the style of torch and Hugging Face, a padding token, a mask
of ones and zeros, each perhaps without the first position, which a causal model has nothing to predict from.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from brim.data import Batch, batch_length
from brim.data.batch import named_tensors, tensor_at

IGNORED = -100
LABEL_WORDS = ("label", "target", "tgt", "answer")
MOST_RULES = 24


@dataclass(frozen=True)
class CountRule:
    """A count of a batch: its samples, or the entries of the tensor at ``path`` that are not ``ignored``.

    ``shift``: how many positions at the start of each sample are not counted. ``skips_empty``: a part that counts
    nothing is left out, for even its gradient is 0 / 0; the host has to look for that, and waits for the device.

    >>> CountRule(("labels",)).count({"labels": torch.tensor([[1, -100], [2, 3]])})
    tensor(3)
    """

    path: tuple[Any, ...] | None = None  # None: samples
    ignored: int = IGNORED
    shift: int = 0
    skips_empty: bool = False

    def count(self, batch: Batch) -> Tensor | int:
        """The count, on the device where the batch is; the number of samples where a batch lacks the tensor."""
        tensor = None if self.path is None else tensor_at(batch, self.path)
        if tensor is None:
            return batch_length(batch)
        return self._counted(tensor).sum()

    def by_sample(self, batch: Batch) -> list[int]:
        """The count of each sample."""
        tensor = None if self.path is None else tensor_at(batch, self.path)
        if tensor is None:
            return [1] * batch_length(batch)
        counted = self._counted(tensor)
        totals: list[int] = counted.reshape(len(counted), -1).sum(1).tolist()
        return totals

    def _counted(self, tensor: Tensor) -> Tensor:
        shifted = tensor[:, self.shift :] if self.shift and tensor.dim() > 1 else tensor
        return shifted != self.ignored

    def __str__(self) -> str:
        if self.path is None:
            return "samples"
        place = "".join(f"[{key!r}]" for key in self.path) or "the batch"
        late = ", the first position left out" if self.shift else ""
        return f"entries of batch{place} that are not {self.ignored}{late}"


SAMPLES = CountRule()


def possible_rules(batch: Batch, ignored_values: Sequence[int] = ()) -> list[CountRule]:
    """What a loss of this batch may be a mean over, the likeliest first; samples come first of all."""
    rules = [SAMPLES]
    for path, tensor in label_tensors(batch):
        for value in _ignored_in(tensor, ignored_values):
            rules.append(CountRule(path, value))
            if tensor.dim() > 1:
                rules.append(CountRule(path, value, shift=1))
    return rules[:MOST_RULES]


def label_tensors(batch: Batch) -> list[tuple[tuple[Any, ...], Tensor]]:
    """Tensors of a batch that may hold labels or masks, the likeliest first: by name, then the last ones of a tuple."""
    length = batch_length(batch)
    found = [
        (path, tensor)
        for path, tensor in named_tensors(batch)
        if tensor.dim() and tensor.shape[0] == length and not tensor.is_sparse and _may_count(tensor)
    ]
    found.reverse()
    return sorted(found, key=lambda place: not _is_named_label(place[0]))


def _is_named_label(path: tuple[Any, ...]) -> bool:
    return any(word in str(key).lower() for key in path for word in LABEL_WORDS)


def _may_count(tensor: Tensor) -> bool:
    """Whole numbers, or a mask kept as real numbers."""
    if not tensor.is_floating_point():
        return not tensor.is_complex()
    return tensor.dim() > 1 and bool(((tensor == 0) | (tensor == 1)).all())


def _ignored_in(tensor: Tensor, known: Sequence[int]) -> Iterator[int]:
    """Values that a loss may leave out: the usual one, those that criteria name, and what samples are padded with."""
    values = dict.fromkeys([IGNORED, *known] if not tensor.is_floating_point() and tensor.dtype != torch.bool else [])
    if tensor.dim() > 1:
        ends = tensor.reshape(len(tensor), -1)[:, -1]
        values.update(dict.fromkeys(int(value) for value in ends[:3]))
        if tensor.dtype == torch.bool or bool(((tensor == 0) | (tensor == 1)).all()):
            values[0] = None
    yield from values


def masked_like(batch: Batch, path: tuple[Any, ...], ignored: int) -> Batch:
    """Change ``batch`` in place: some labels become ``ignored``, fewer of the first samples than of the last.

    So counts differ between samples, and a mean over labels shows. Each sample keeps one that counts.
    """
    tensor = tensor_at(batch, path)
    assert tensor is not None
    samples = len(tensor)
    if tensor.dim() == 1:  # every second one of the second half
        tensor[samples // 2 :: 2] = ignored
        return batch
    rows = tensor.reshape(samples, -1)
    width = rows.shape[1]
    for sample in range(samples):
        left_out = torch.arange(width) % (2 + samples - sample) == 1
        left_out[width // 2 :] |= sample >= samples // 2
        left_out[min(1, width - 1)] = False  # what is left when the first position is not counted
        rows[sample, left_out.to(rows.device)] = ignored
    tensor.copy_(rows.reshape(tensor.shape))
    return batch
