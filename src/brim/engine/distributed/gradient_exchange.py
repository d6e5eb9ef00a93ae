"""Gradients and losses over all ranks: an all-reduce of a small status tensor, and one of each bucket of gradients."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn

from brim.engine.components.loss import Loss
from brim.engine.distributed.buckets import Bucket, bucket_bytes, in_buckets
from brim.engine.distributed.overlap import Overlap
from brim.engine.distributed.ranks import Ranks, on_all_ranks
from brim.errors import CannotFit, ConfigError

LEAST_TIMEOUT_S, TIMEOUT_FACTOR = 100.0, 20  # times the slowest exchange: a rank may search for its micro-batch size
FAILED, SIGNALLED, STOPPING, TOTAL, COUNT, HAD_OOM, FIXED = range(7)  # places in the status tensor
OUT_OF_ORDER = 1e6  # more than there are ranks


class Reduced(NamedTuple):
    """The status of all ranks: the loss over all of them, and what any of them says."""

    loss: Loss
    signalled: bool  # to stop, by the system
    stop_requested: bool  # by the trainer or a callback
    had_oom: bool
    uneven_gradients: bool  # whether a parameter has a gradient on some ranks only


class GradientExchange:
    """All-reduces gradients in buckets, which share one block of memory, and knows how long that takes."""

    def __init__(self, ranks: Ranks) -> None:
        self.ranks = ranks
        self.stop_requests: Callable[[], tuple[bool, bool]] = lambda: (False, False)  # of this rank: signal, trainer
        self._buckets: list[Bucket] = []
        self._slowest: float | None = None  # exchange, in seconds

    @property
    def collectives_per_step(self) -> int:
        """How many there are in a step without overlap: the status tensor, and the buckets."""
        return 1 + len(self._buckets)

    @property
    def timeout(self) -> float:
        """Seconds after which a rank is lost in an exchange of the step, by how long others took."""
        return max(LEAST_TIMEOUT_S, TIMEOUT_FACTOR * (self._slowest or 0.0))

    def all_reduce(
        self, parameters: Sequence[nn.Parameter], loss: Loss, samples: int, had_oom: bool = False
    ) -> Reduced:
        """Make everybody's gradients those of the mean over all that all ranks counted.

        Each comes with those of its total over ``samples``. A parameter without a gradient on all ranks stays so.
        """
        if any(parameter.grad is not None and parameter.grad.is_sparse for parameter in parameters):
            raise ConfigError("sparse gradients are not exchanged between ranks; use nn.Embedding(sparse=False)")
        sums = self._status_tensor(loss, parameters, float(had_oom))
        with self._timed():
            dist.all_reduce(sums)
            known = sums.tolist()
        if known[FAILED]:
            raise on_all_ranks(
                CannotFit("another rank has no memory for its share of the batch; its own log says what it tried")
            )
        self.reserve(parameters)
        chosen = {id(parameter) for parameter, ranks in zip(parameters, known[FIXED:], strict=True) if ranks}
        scale = 1 / known[COUNT] if known[COUNT] else 0.0
        with self._timed():
            for bucket in self._buckets:
                bucket.fill(samples)
                dist.all_reduce(bucket.flat)
                bucket.hand_out(scale, chosen)
        return _reduced(sums, known, self.ranks.world)

    def finish_overlapped(self, overlap: Overlap, loss: Loss, had_oom: bool) -> Reduced | None:
        """The same where gradients were sent while they were computed; None where a rank ran out of memory at that.

        Then nothing of it counts, and all make the step again.
        """
        with self._timed():
            overlap.send_rest(empty=had_oom)
            trouble = float(had_oom) + OUT_OF_ORDER * overlap.is_out_of_order
            sums = self._status_tensor(loss, overlap.parameters, trouble)
            dist.all_reduce(sums)
            overlap.wait()
            known = sums.tolist()
        overlap.is_out_of_order = known[HAD_OOM] >= OUT_OF_ORDER  # by any rank: all draw the same conclusion
        if known[HAD_OOM]:
            return None
        overlap.hand_out(1 / known[COUNT] if known[COUNT] else 0.0, [bool(ranks) for ranks in known[FIXED:]])
        return _reduced(sums, known, self.ranks.world)

    def reduce_loss(self, loss: Loss, parameters: Sequence[nn.Parameter]) -> Reduced:
        """The same without gradients, which FSDP has reduced by itself."""
        sums = self._status_tensor(loss, parameters, 0.0)
        with self._timed():
            dist.all_reduce(sums)
            known = sums.tolist()
        self.ranks.set_timeout()  # the long one, for FSDP's own collectives
        return _reduced(sums, known, self.ranks.world)

    def report_failure(self, parameters: Sequence[nn.Parameter]) -> None:
        """Enter the exchange only to say that this rank cannot go on."""
        sums = torch.zeros(FIXED + len(parameters), dtype=torch.float64, device=parameters[0].device)
        sums[FAILED] = 1
        dist.all_reduce(sums)

    def reserve(self, parameters: Sequence[nn.Parameter]) -> None:
        """Take the memory for the buckets while running out of it can still be dealt with: one block for all."""
        held = [parameter for bucket in self._buckets for parameter in bucket.parameters]
        if len(held) == len(parameters) and all(a is b for a, b in zip(held, reversed(parameters), strict=True)):
            return
        self._buckets = []  # parameters may have been thawed
        groups = in_buckets(parameters)
        size = max((sum(map(bucket_bytes, group)) for group in groups), default=0)
        memory = torch.empty(size, dtype=torch.uint8, device=parameters[0].device)
        self._buckets = [Bucket(group, memory) for group in groups]

    @contextmanager
    def _timed(self) -> Iterator[None]:
        """An exchange of the step. After the first it is known how long one takes, so a lost rank shows soon."""
        began = time.perf_counter()
        with self.ranks.collective("the exchange of gradients", None if self._slowest is None else self.timeout):
            yield
        self._slowest = max(self._slowest or 0.0, time.perf_counter() - began)

    def _status_tensor(self, loss: Loss, parameters: Sequence[nn.Parameter], had_oom: float) -> Tensor:
        """This rank's status before it is added up, and which parameters have a gradient here."""
        signalled, stop_requested = self.stop_requests()
        values = [0.0] * FIXED + [float(parameter.grad is not None) for parameter in parameters]
        values[SIGNALLED], values[STOPPING], values[HAD_OOM] = float(signalled), float(stop_requested), had_oom
        values[COUNT] = 0.0 if isinstance(loss.count, Tensor) else float(loss.count)
        # At once: every number by itself is a launch.
        tensor = torch.tensor(values, dtype=torch.float64).to(self.ranks.device)
        tensor[TOTAL] = loss.total
        if isinstance(loss.count, Tensor):
            tensor[COUNT] = loss.count
        return tensor


def _reduced(sums: Tensor, known: list[float], world: int) -> Reduced:
    loss = Loss(sums[TOTAL].float(), known[COUNT])
    uneven = any(ranks not in (0, world) for ranks in known[FIXED:])
    return Reduced(loss, bool(known[SIGNALLED]), bool(known[STOPPING]), bool(known[HAD_OOM]), uneven)
