"""A captured step of ranks that train together: one graph until gradients are exchanged, and one from there on."""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from brim.data import Batch
from brim.engine.captured.graph import StepGraph, recorded
from brim.engine.captured.no_exchange import no_exchange
from brim.engine.captured.optimizers import LearningRates
from brim.engine.components.loss import Loss
from brim.engine.distributed.buckets import Bucket
from brim.engine.distributed.overlap import Overlap
from brim.engine.step.eager_step import EagerStep
from brim.engine.step.replicated_step import ReplicatedStep


class TwoHalves(StepGraph):
    """The exchange itself is not in a graph: it is a few launches, and a graph that holds work of NCCL can neither be
    given up alone nor outlive the process group.

    On trial nobody else takes part: a rank proves by itself that both halves compute what its eager step would, with
    its own samples alone, so that one that fails leaves no other waiting.
    """

    def __init__(
        self,
        replicated: ReplicatedStep,
        eager: EagerStep,
        window: Sequence[Batch],
        rates: LearningRates,
        in_blocks: bool = False,
        ring: int | None = None,
    ) -> None:
        super().__init__(eager, window, rates, in_blocks, ring)
        self.replicated = replicated
        self._first: torch.cuda.CUDAGraph | None = None
        self._half: _Half | None = None  # between the graphs

    def make_step(self) -> Tensor:
        self._compute()
        return self._finish()

    def eager_gradients(self, window: Sequence[Batch]) -> Tensor:
        """Of this rank alone. The memory between the graphs' halves stays theirs."""
        return self._mean(self._compute_on(window))

    def _compute(self) -> None:
        """The first half: this rank's gradients as sums, its loss, and over how many samples that is."""
        self._half = self._compute_on(self.inputs.window())

    def _compute_on(self, window: Sequence[Batch]) -> "_Half":
        replicated, trained = self.replicated, self.eager.trained
        with no_exchange() if self.is_on_trial else nullcontext():
            own = replicated.own_gradients(window)
        if replicated.overlap is None or not replicated.overlap.is_for(trained):
            replicated.overlap = Overlap(trained)  # its memory holds what is sent
        buckets = replicated.overlap.buckets
        chosen = {id(parameter) for parameter in trained if parameter.grad is not None}
        sums = torch.stack([own.loss.total.double(), _as_tensor(own.loss)])
        for bucket in buckets:
            bucket.fill(own.samples)
        return _Half(sums, buckets, chosen)

    def _exchange(self) -> None:
        """Between the halves: sums over all ranks, in the buckets and the order of an eager step."""
        exchange = self.replicated.exchange
        assert self._half is not None
        with exchange.ranks.collective("the exchange of gradients", exchange.timeout):
            dist.all_reduce(self._half.sums)
            for bucket in self._half.buckets:
                dist.all_reduce(bucket.flat)

    def _mean(self, half: "_Half") -> Tensor:
        """Means over all that was counted, clipped."""
        total, count = half.sums
        scale = (count != 0) / (count + (count == 0))
        for bucket in half.buckets:
            bucket.hand_out(scale, half.chosen)
        self.eager.clip()
        return Loss(total.float(), count.float()).mean

    def _finish(self) -> Tensor:
        """The second half: means over all that was counted, the clip, the optimizer."""
        assert self._half is not None
        with self.clip.on_device():
            loss = self._mean(self._half)
        with self.rates.on_device():
            self._loss = loss = self.eager.apply(loss).loss
        self._keep(loss)
        return loss

    def _record(self, pool: Any, stream: torch.cuda.Stream) -> None:
        self._first = recorded(self._compute, pool, stream)
        self.graph = recorded(self._finish, pool, stream)

    def _run(self) -> None:
        assert self._first is not None and self.graph is not None
        self._first.replay()
        if not self.is_on_trial:
            self._exchange()
        self.graph.replay()


class _Half(NamedTuple):
    """What the first half leaves for the second: sums, of this rank and then of all."""

    sums: Tensor  # the loss and its count
    buckets: list[Bucket]
    chosen: set[int]  # parameters that have a gradient


def _as_tensor(loss: Loss) -> Tensor:
    count = loss.count
    if isinstance(count, Tensor):
        return count.to(loss.total.device, torch.float64)
    return torch.full((), float(count), dtype=torch.float64, device=loss.total.device)
