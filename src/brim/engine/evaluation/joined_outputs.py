"""Outputs of many batches as those of all samples."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from brim.data.batches.batch import is_container, leaves_of, map_children, map_leaves


@dataclass(frozen=True)
class PartOutput:
    """The output for so many samples, in host memory."""

    value: Any
    samples: int


def to_host(output: Any) -> Any:
    """The same output in host memory, without its graph; bf16 as float32, which holds the same numbers and numpy knows.

    >>> to_host(torch.ones(2, dtype=torch.bfloat16)).dtype
    torch.float32
    """

    def move(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        moved = leaf.detach().to("cpu")
        return moved.float() if moved.dtype == torch.bfloat16 else moved

    return map_leaves(move, output)


def join(parts: Sequence[PartOutput]) -> Any:
    """The outputs of all parts, one after the other, in the containers that they sit in.

    Tensors that differ in more than their first dimension (texts of different lengths) become a list with a tensor for
    each sample: nothing is padded, so nothing has to be told from padding.

    >>> join([PartOutput(torch.ones(2, 3), 2), PartOutput(torch.ones(1, 3), 1)]).shape
    torch.Size([3, 3])
    """
    values, sizes = [part.value for part in parts], [part.samples for part in parts]
    return _joined(values, sizes)


def _joined(values: list[Any], sizes: list[int]) -> Any:
    first = values[0]
    if all(isinstance(value, Tensor) for value in values):
        return _joined_tensors(values, sizes)
    if isinstance(first, Mapping) and all(isinstance(one, Mapping) and one.keys() == first.keys() for one in values):
        return {key: _joined([value[key] for value in values], sizes) for key in first}
    if _are_lists_of_samples(values, sizes):
        return [item for value in values for item in value]
    if is_container(first) and isinstance(first, tuple | list) and _are_alike(values):
        columns = iter([_joined(list(column), sizes) for column in zip(*values, strict=True)])
        return map_children(lambda _: next(columns), first)
    return values


def _are_alike(values: list[Any]) -> bool:
    return all(type(value) is type(values[0]) and len(value) == len(values[0]) for value in values)


def _joined_tensors(values: list[Tensor], sizes: list[int]) -> Any:
    if all(value.dim() == 0 for value in values):
        return torch.stack(values)
    if all(value.dim() and value.shape[1:] == values[0].shape[1:] for value in values):
        return torch.cat(values)
    if all(value.dim() and len(value) == size for value, size in zip(values, sizes, strict=True)):
        return [row for value in values for row in value.unbind()]
    return values


def _are_lists_of_samples(values: list[Any], sizes: list[int]) -> bool:
    """Whether each is a list with something for each sample (boxes of a picture, a text) and not one of columns."""
    if not all(type(value) is list and len(value) == size for value, size in zip(values, sizes, strict=True)):
        return False
    return not all(
        isinstance(leaf, Tensor) and leaf.dim() and len(leaf) == size
        for value, size in zip(values, sizes, strict=True)
        for leaf in leaves_of(value)
    ) or not any(leaves_of(value) for value in values)
