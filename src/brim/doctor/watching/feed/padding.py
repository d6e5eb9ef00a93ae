"""How much of a batch is padding: positions at the ends of its sequences that stand for nothing."""

from collections.abc import Iterable
from typing import Any

from torch import Tensor

from brim.doctor.batch_contents import tensors_of

SHORTEST = 8  # positions: fewer are columns of a table


def padded_share(batches: Iterable[Any]) -> float:
    """The share of positions in some batches that are padding; 0 where none have sequences that are seen to be padded.

    >>> import torch
    >>> tokens = torch.tensor([[5, 6, 7, 8, 9, 5, 6, 7], [7, 6, 0, 0, 0, 0, 0, 0]])
    >>> padded_share([{"input_ids": tokens}])
    0.375
    """
    positions = padded = 0
    for batch in batches:
        found = next((pads for tensor in tensors_of(batch) if (pads := _padding(tensor)) is not None), None)
        if found is not None:
            positions, padded = positions + found.numel(), padded + int(found.sum())
    return padded / positions if positions else 0.0


def _padding(tensor: Tensor) -> Tensor | None:
    """Which positions of sequences are padding: one value, or rows of zeros, that fills their ends and is nowhere else.

    Tokens and masks are sequences by positions, features are by positions and what each has.
    """
    if tensor.dim() < 2 or tensor.dim() > 3 or tensor.shape[1] < SHORTEST:
        return None
    is_tokens = tensor.dim() == 2 and not tensor.is_floating_point()
    if not is_tokens and not (tensor.dim() == 3 and tensor.is_floating_point()):
        return None
    for turned in (tensor, tensor.flip(1)):  # some are padded in front
        last, before = turned[:, -1], turned[:, -2]
        repeated = last[last == before]
        if is_tokens and not len(repeated):
            continue
        pads = turned == repeated.mode().values if is_tokens else (turned == 0).all(-1)
        is_at_ends = bool((pads[:, 1:] >= pads[:, :-1]).all())
        if is_at_ends and pads.any() and not pads.all(1).any():
            return pads
    return None
