"""The order in which an epoch visits the samples of shards: shuffled well, and near-sequential on the disk.

Shards are permuted and read by a few virtual readers in turn, then samples are permuted within windows. A window
therefore mixes stretches of as many shards as there are readers, and touches nothing else. The readers are arithmetic,
not processes: the order is the same for any number of workers and ranks.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brim.data.randomness.order import stream_key
from brim.sizes import check_whole

READERS = 8
BUFFER = 10_000


def epoch_order(counts: Sequence[int], seed: int, epoch: int, buffer: int = BUFFER) -> Tensor:
    """Sample numbers in the order of an epoch, for shards of ``counts`` samples numbered one shard after the other.

    >>> sorted(epoch_order([3, 2], seed=0, epoch=0).tolist())
    [0, 1, 2, 3, 4]
    """
    check_whole("buffer", buffer)
    generator = torch.Generator("cpu").manual_seed(stream_key(seed, epoch) >> 1)
    shards = torch.randperm(len(counts), generator=generator, device="cpu").numpy()
    in_turn = torch.from_numpy(interleave(np.asarray(counts, dtype=np.int64), shards))
    return in_turn[window_permutation(len(in_turn), buffer, generator)]


def interleave(counts: np.ndarray[Any, Any], shards: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Sample numbers as readers give them in turn, one sample each, where reader r reads shards r, r + readers, ...

    The t-th sample of reader r comes at rank t * readers + r among all; a reader at its end is passed over.

    >>> interleave(np.array([3, 2]), np.array([1, 0])).tolist()
    [3, 0, 4, 1, 2]
    """
    readers = max(1, min(READERS, len(counts)))
    lengths = counts[shards]
    reader = np.arange(len(shards)) % readers
    before = np.empty_like(lengths)  # samples that a shard's reader has given before it
    for number in range(readers):
        own = lengths[number::readers]
        before[number::readers] = own.cumsum() - own
    within = np.arange(lengths.sum()) - np.repeat(lengths.cumsum() - lengths, lengths)
    rank = (np.repeat(before, lengths) + within) * readers + np.repeat(reader, lengths)
    first = counts.cumsum() - counts
    in_turn: np.ndarray[Any, Any] = (np.repeat(first[shards], lengths) + within)[np.argsort(rank, kind="stable")]
    return in_turn


def window_permutation(samples: int, buffer: int, generator: torch.Generator) -> Tensor:
    """A permutation that moves no sample out of its window of ``buffer`` consecutive positions."""
    draws = torch.rand(samples, generator=generator, dtype=torch.float64, device="cpu")
    whole = samples - samples % buffer
    starts = torch.arange(0, whole, buffer, device="cpu").unsqueeze(1)
    windows = draws[:whole].view(-1, buffer).argsort(dim=1, stable=True) + starts
    return torch.cat([windows.flatten(), draws[whole:].argsort(stable=True) + whole])
