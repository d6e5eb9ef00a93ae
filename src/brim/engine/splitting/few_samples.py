"""A few samples of a batch that tell what a loss counts: as different from each other as they come, or are made."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from brim.data import Batch, batch_length, slice_batch
from brim.data.batches.batch import map_leaves, named_tensors, select_rows, tensor_at
from brim.engine.components.loss_count import CountRule, possible_rules

TRIED_SAMPLES = 8
LEAST_SAMPLES = 4  # two in each half: where a batch has fewer they are repeated
HEAD = 256  # samples among which those to try are chosen


def enough_samples(batches: Sequence[Batch]) -> Batch:
    """The longest of some batches; where they have a sample each, several of these, or of what one can be made into.

    Samples of other lengths are cut to the shortest, from their ends, where labels are. One alone is put beside itself,
    moved on by a position: that is another sample of the same kind, with the same values.
    """
    longest = max(batches, key=batch_length)
    if batch_length(longest) >= 2:
        return longest
    single = [batch for batch in batches if batch_length(batch) == 1][:TRIED_SAMPLES]
    try:
        if len(single) > 1:
            return _joined(single)
    except (RuntimeError, ValueError, TypeError):  # not of one kind
        pass
    tensors = [tensor for _, tensor in named_tensors(longest)]
    if any(tensor.dim() and len(tensor) != 1 for tensor in tensors):
        return longest
    return map_leaves(lambda leaf: _with_neighbours(leaf) if isinstance(leaf, Tensor) else leaf, longest)


def _joined(batches: Sequence[Batch]) -> Batch:
    columns = iter(list(zip(*[[t for _, t in named_tensors(batch)] for batch in batches], strict=True)))

    def join(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        column = next(columns)
        if leaf.dim() == 0:
            return leaf
        if leaf.dim() > 1:
            shortest = min(tensor.shape[1] for tensor in column)
            column = tuple(tensor[:, tensor.shape[1] - shortest :] for tensor in column)
        return torch.cat(column)

    return map_leaves(join, batches[0])


def _with_neighbours(tensor: Tensor) -> Tensor:
    if tensor.dim() == 0:
        return tensor
    return torch.cat([tensor.roll(step, -1) if tensor.dim() > 1 else tensor for step in range(4)])


def informative_samples(batch: Batch, samples: int, ignored: Sequence[int], skip: int = 0) -> Batch:
    """Samples whose counts differ most, those that count much first. ``skip``: how many told nothing before."""
    start = max(0, min(skip, batch_length(batch) - samples))
    head = slice_batch(batch, start, min(start + HEAD, batch_length(batch)))
    order = list(range(batch_length(head)))
    for rule in possible_rules(head, ignored)[1:]:
        counts = rule.by_sample(head)
        if len(set(counts)) > 1:
            counting = [row for row in order if counts[row]]
            order = counting if len(counting) >= samples else order
            order.sort(key=lambda row: -counts[row])
            break
    order = (order * samples)[: max(samples, len(order))]
    return select_rows(head, torch.tensor(order[: samples // 2] + order[len(order) - (samples - samples // 2) :]))


def random_samples(batch: Batch, samples: int) -> Batch | None:
    """Some more, at random; None where there are not many more."""
    length = min(HEAD, batch_length(batch))
    if length < 2 * samples:
        return None
    rows = torch.randperm(length, generator=torch.Generator("cpu").manual_seed(0))[:samples]
    return select_rows(slice_batch(batch, 0, length), rows)


def with_fewer_labels(batch: Batch, rule: CountRule) -> Batch | None:
    """A copy in which the first half of the samples counts more by this rule and the second half less.

    Nothing is put there but the ignored value and labels of the same sample. None where counts cannot differ.
    """
    made = clone(batch)
    tensor = None if rule.path is None else tensor_at(made, rule.path)
    if tensor is None:
        return None
    middle = len(tensor) // 2
    if rule.sums:  # lengths are rounded up: none of them becomes 0
        tensor[middle:] = tensor[middle:] * 0.5 if tensor.is_floating_point() else (tensor[middle:] + 1) // 2
        return made
    if tensor.numel() == len(tensor):  # a label for each sample
        tensor[middle + 1 :] = rule.ignored
        return made if len(tensor) - middle > 1 else None
    rows = tensor.reshape(len(tensor), -1)
    for number, row in enumerate(rows):
        counting = rule.counted(row[None])[0].nonzero().flatten()
        if len(counting) == 0:
            continue
        if number < middle:
            ignored = (~rule.counted(row[None])[0]).nonzero().flatten()
            row[ignored[1::2]] = row[counting[-1]].clone()
        else:
            row[counting[:-1]] = rule.ignored
    tensor.copy_(rows.reshape(tensor.shape))
    return made


def with_first_label(batch: Batch, rules: Sequence[CountRule]) -> Iterator[Batch]:
    """Copies in which the first half of the samples has a label that counts at the very start: is it counted?"""
    for path, ignored in dict.fromkeys((rule.path, rule.ignored) for rule in rules if rule.shift):
        made = clone(batch)
        tensor = None if path is None else tensor_at(made, path)
        if tensor is not None:
            for row in tensor[: len(tensor) // 2]:
                counting = row[row != ignored]
                row[:1] = counting[0] if len(counting) else row[:1]
            yield made


def clone(batch: Batch) -> Batch:
    """The same batch in memory of its own."""
    return map_leaves(lambda leaf: leaf.detach().clone() if isinstance(leaf, Tensor) else leaf, batch)
