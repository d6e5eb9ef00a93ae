"""The gradients of a captured step whose ranks exchange them: computed in one graph, handed out in the next."""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from brim.data import Batch
from brim.engine.captured.no_exchange import no_exchange
from brim.engine.components.loss import Loss
from brim.engine.distributed.buckets import Bucket
from brim.engine.distributed.overlap import Overlap
from brim.engine.step.replicated_step import ReplicatedStep


class ExchangedGradients:
    """The exchange itself is not in a graph: it is a few launches, and a graph that holds work of NCCL can neither be
    given up alone nor outlive the process group.

    On trial nobody else takes part: a rank proves by itself that both halves compute what its eager step would, with
    its own samples alone, so that one that fails leaves no other waiting.
    """

    def __init__(self, replicated: ReplicatedStep) -> None:
        self.replicated = replicated
        self._sums: _Sums | None = None  # between the graphs

    def compute(self, window: Sequence[Batch], is_on_trial: bool) -> None:
        """The first half: this rank's gradients as sums, its loss, and over how many samples that is."""
        self._sums = self._sums_of(window, is_on_trial)

    def all_reduce(self) -> None:
        """Between the halves: sums over all ranks, in the buckets and the order of an eager step."""
        exchange = self.replicated.exchange
        assert self._sums is not None
        with exchange.ranks.collective("the exchange of gradients", exchange.timeout):
            dist.all_reduce(self._sums.loss)
            for bucket in self._sums.buckets:
                dist.all_reduce(bucket.flat)

    def mean(self) -> Tensor:
        """The second half: means over all that was counted, clipped."""
        assert self._sums is not None
        return self._mean_of(self._sums)

    def of_this_rank(self, window: Sequence[Batch], is_on_trial: bool) -> Tensor:
        """Both halves for its samples alone. The memory between the graphs stays theirs."""
        return self._mean_of(self._sums_of(window, is_on_trial))

    def _sums_of(self, window: Sequence[Batch], is_on_trial: bool) -> "_Sums":
        replicated, trained = self.replicated, self.replicated.eager.trained
        with no_exchange() if is_on_trial else nullcontext():
            own = replicated.own_gradients(window)
        if replicated.overlap is None or not replicated.overlap.is_for(trained):
            replicated.overlap = Overlap(trained)  # its memory holds what is sent
        buckets = replicated.overlap.buckets
        chosen = {id(parameter) for parameter in trained if parameter.grad is not None}
        loss = torch.stack([own.loss.total.double(), _count_of(own.loss)])
        for bucket in buckets:
            bucket.fill(own.samples)
        return _Sums(loss, buckets, chosen)

    def _mean_of(self, sums: "_Sums") -> Tensor:
        total, count = sums.loss
        scale = (count != 0) / (count + (count == 0))
        for bucket in sums.buckets:
            bucket.hand_out(scale, sums.chosen)
        self.replicated.eager.clip()
        return Loss(total.float(), count.float()).mean


class _Sums(NamedTuple):
    """What the first half leaves for the second: sums, of this rank and then of all."""

    loss: Tensor  # and its count
    buckets: list[Bucket]
    chosen: set[int]  # parameters that have a gradient


def _count_of(loss: Loss) -> Tensor:
    count = loss.count
    if isinstance(count, Tensor):
        return count.to(loss.total.device, torch.float64)
    return torch.full((), float(count), dtype=torch.float64, device=loss.total.device)
