"""Whether a collate function computes each sample by itself: each rank collates its own part of every batch."""

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import default_collate

from brim.data import Loader
from brim.data.batches.batch import named_tensors
from brim.data.probing.dry_run import WouldWriteFiles, dry_run
from brim.data.randomness.generators import host_marks

TRIED = 8  # samples, and half of them
MOST_NUMBERS = 1 << 12  # of each sample that are compared
TOLERANCE = 1e-4
Collate = Callable[[list[Any]], Any]


def warning_of_collating(loader: Loader) -> str | None:
    """A sentence where parts of a batch are collated to something else than the batch; the data set does not notice."""
    collate = loader.request.collate
    if collate is None or collate is default_collate:
        return None
    try:
        mixed = dry_run(lambda both: _tried(*both), (loader.data, collate))
    except WouldWriteFiles:
        return None
    if not mixed:
        return None
    return (
        f"collate_fn computes the samples of a batch from one another ({mixed} of half of them is not that of all), "
        "and each rank collates its own part, so this is another training than on one rank; pass an iterable of ready "
        "batches, which are cut after they are collated, or compute it in the loss"
    )


def _tried(data: Any, collate: Collate) -> str:
    try:
        samples = [data[number] for number in range(min(TRIED, len(data)))]
        return mixed_part(collate, samples)
    except Exception:  # what cannot be tried so will be told where it is done in earnest
        return ""


def mixed_part(collate: Collate, samples: list[Any]) -> str:
    """The place in a batch where half of the samples come out as something else than among all; "" for none.

    Rows may come in another order, padded to another length, or without what no sample of a part has. Of a function
    that draws random numbers nothing can be told: it draws others for a part.

    >>> mixed_part(lambda samples: torch.stack(samples) / torch.stack(samples).sum(), list(torch.arange(4.0)))
    'batch'
    """
    before = host_marks()
    whole = dict(named_tensors(collate(copy.deepcopy(samples))))
    part = dict(named_tensors(collate(copy.deepcopy(samples[: len(samples) // 2]))))
    if host_marks() != before or len(samples) < 2:
        return ""
    matches = torch.ones(len(samples) // 2, len(samples), dtype=torch.bool)  # rows of the part, and of the whole
    for path in (path for path in whole if path in part):
        matches &= _matching_rows(whole[path], part[path], matches)
        if not matches.any(1).all():
            return "batch" + "".join(f"[{key!r}]" for key in path)
    return ""


def _matching_rows(whole: Tensor, part: Tensor, all_do: Tensor) -> Tensor:
    """Which rows of a part are which of the whole's; all where these are no rows of samples, or of other lengths."""
    if whole.layout is not torch.strided or not whole.dim() or (len(part), len(whole)) != all_do.shape:
        return all_do
    if whole.shape[1:] != part.shape[1:]:
        return all_do
    wide, few = (tensor.reshape(len(tensor), -1) for tensor in (whole, part))
    columns = slice(None, None, max(1, wide.shape[1] // MOST_NUMBERS))
    return torch.isclose(few[:, None, columns], wide[None, :, columns], rtol=TOLERANCE, equal_nan=True).all(2)
