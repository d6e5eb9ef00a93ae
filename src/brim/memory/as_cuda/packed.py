"""Packed sequences: torch reads their lengths from memory, which fake tensors do not have."""

from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from brim.errors import ModelError
from brim.memory.as_cuda.call_recorder import CallRecorder

UNKNOWN_LENGTHS = (
    "the lengths given to pack_padded_sequence are not known before training: all were taken to be as long as the batch"
)


def pack(recorder: CallRecorder, x: Tensor, lengths: Tensor, batch_first: bool) -> tuple[Tensor, Tensor]:
    """``_pack_padded_sequence``: the rows of a padded batch step by step, and how many there are at each step."""
    batch, time = (x.shape[0], x.shape[1]) if batch_first else (x.shape[1], x.shape[0])
    known = recorder.numbers(lengths)
    if known is None:
        recorder.note(UNKNOWN_LENGTHS)
        known = [time] * batch
    _check(known, batch)
    sizes = [size for start, end, size in _blocks(known) for _ in range(start, end)]
    data: Tensor = _Pack.apply(x, known, batch_first)  # type: ignore[no-untyped-call]
    return data, _on_the_cpu(recorder, sizes)


def _check(lengths: list[int], batch: int) -> None:
    if len(lengths) != batch:
        raise ValueError(f"{len(lengths)} lengths were given for a batch of {batch} sequences")
    if min(lengths) < 1:
        raise ValueError("the length of every sequence must be at least 1")
    if sorted(lengths, reverse=True) != lengths:
        raise ValueError("lengths must fall when enforce_sorted is True; pass enforce_sorted=False")


def _blocks(lengths: list[int]) -> list[tuple[int, int, int]]:
    """(first step, step after the last, sequences) of the steps that the same number of sequences takes part in."""
    blocks, start = [], 0
    for place, length in reversed(list(enumerate(lengths, 1))):  # from the shortest sequence to the longest
        if length > start:
            blocks.append((start, length, place))
            start = length
    return blocks


class _Pack(torch.autograd.Function):
    """Block for block as torch does it: each is copied where it is not in one piece, then all into one."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, lengths: list[int], batch_first: bool) -> Tensor:
        ctx.shape, ctx.batch_first = x.shape, batch_first
        steps = x.transpose(0, 1) if batch_first else x
        return torch.cat([steps[start:end, :size].contiguous().flatten(0, 1) for start, end, size in _blocks(lengths)])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        first, second, *rest = ctx.shape
        if not ctx.batch_first:
            return gradient.new_zeros(ctx.shape), None, None
        return gradient.new_zeros((second, first, *rest)).transpose(0, 1), None, None


def unpack(
    recorder: CallRecorder, data: Tensor, batch_sizes: Tensor, batch_first: bool, padding: float, total_length: int
) -> tuple[Tensor, Tensor]:
    """``_pad_packed_sequence``: the padded batch, and the lengths."""
    sizes = recorder.numbers(batch_sizes)
    if sizes is None:
        raise ModelError("the batch_sizes of a PackedSequence are not known; make it with pack_padded_sequence")
    output = data.new_full((max(total_length, len(sizes)), sizes[0], *data.shape[1:]), padding)
    start = offset = 0
    for size, steps in groupby(sizes):
        end = start + len(list(steps))
        rows = data[offset : offset + size * (end - start)]
        output[start:end, :size].copy_(rows.view(end - start, size, *data.shape[1:]))
        start, offset = end, offset + len(rows)
    lengths = [sum(size > place for size in sizes) for place in range(sizes[0])]
    return output.transpose(0, 1) if batch_first else output, _on_the_cpu(recorder, lengths)


def _on_the_cpu(recorder: CallRecorder, numbers: list[int]) -> Tensor:
    """Whole numbers that torch keeps in the memory of the host, whatever the device."""
    with recorder.paused():
        return torch.tensor(numbers)
