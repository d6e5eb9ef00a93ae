"""A captured step of ranks that train together: one graph until gradients are exchanged, and one from there on."""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from brim.data import Batch
from brim.engine.captured.graph import StepGraph, recorded
from brim.engine.captured.no_exchange import no_exchange
from brim.engine.components.loss import Loss
from brim.engine.distributed.overlap import Overlap


class TwoHalves(StepGraph):
    """The exchange itself is not in a graph: it is a few launches, and a graph that holds work of NCCL can neither be
    given up alone nor outlive the process group.

    On trial nobody else takes part: a rank proves by itself that both halves compute what its eager step would, with
    its own samples alone, so that one that fails leaves no other waiting.
    """

    _first: torch.cuda.CUDAGraph | None = None
    _told: Tensor  # the summed loss and its count: between the halves
    _chosen: set[int]

    def make_step(self) -> Tensor:
        self._compute()
        return self._finish()

    def eager_gradients(self, window: Sequence[Batch]) -> Tensor:
        """Of this rank alone. The memory between the graphs' halves stays theirs."""
        eager = self.eager
        kept = self._told, self._chosen, eager.local, eager.expected
        try:
            self._compute_on(window)
            return self._mean()
        finally:
            self._told, self._chosen, eager.local, eager.expected = kept

    def _compute(self) -> None:
        """The first half: this rank's gradients as sums, its loss, and over how many samples that is."""
        self._compute_on(self.inputs.window())

    def _compute_on(self, window: Sequence[Batch]) -> None:
        eager = self.eager
        with no_exchange() if self.is_on_trial else nullcontext():
            eager.gradients(window)
        if eager.overlap is None or not eager.overlap.is_for(eager.trained):
            eager.overlap = Overlap(eager.trained)  # its memory holds what is sent
        self._buckets = eager.overlap.buckets
        self._chosen = {id(parameter) for parameter in eager.trained if parameter.grad is not None}
        self._told = torch.stack([eager.local.total.double(), _as_tensor(eager.local)])
        for bucket in self._buckets:
            bucket.fill(eager.expected)

    def _exchange(self) -> None:
        """Between the halves: sums over all ranks, in the buckets and the order of an eager step."""
        ranks = self.eager.ranks
        assert ranks is not None
        with ranks.collective("the exchange of gradients", ranks.step_timeout):
            dist.all_reduce(self._told)
            for bucket in self._buckets:
                dist.all_reduce(bucket.flat)

    def _mean(self) -> Tensor:
        """Means over all that was counted, clipped."""
        total, count = self._told
        scale = (count != 0) / (count + (count == 0))
        for bucket in self._buckets:
            bucket.hand_out(scale, self._chosen)
        self.eager.clip()
        return Loss(total.float(), count.float()).mean

    def _finish(self) -> Tensor:
        """The second half: means over all that was counted, the clip, the optimizer."""
        with self.clip.on_device():
            loss = self._mean()
        with self.rates.on_device():
            self._loss = loss = self.eager.apply(loss)
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


def _as_tensor(loss: Loss) -> Tensor:
    count = loss.count
    if isinstance(count, Tensor):
        return count.to(loss.total.device, torch.float64)
    return torch.full((), float(count), dtype=torch.float64, device=loss.total.device)
