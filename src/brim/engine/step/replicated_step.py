"""The step of a model that every rank has a replica of: each computes a part of the batch, gradients are reduced."""

from collections.abc import Sequence

import torch

from brim.data import Batch, batch_length
from brim.engine.components.loss import Loss
from brim.engine.distributed.gradient_exchange import GradientExchange, Reduced
from brim.engine.distributed.overlap import Overlap
from brim.engine.distributed.ranks import Ranks
from brim.engine.gathering.gather_session import GatherSession
from brim.engine.numbers.gather_scope import Alone, Refused, gathering
from brim.engine.oom.out_of_memory import EXCHANGE, is_out_of_memory
from brim.engine.step.eager_step import EagerStep, WindowLoss
from brim.engine.step.gathered_gradients import gathered_gradients

NEVER = -(10**9)
UNSEEN = Refused(
    "the loss did not call it when it was tried for a few samples before the first step, so ranks that run out of "
    "memory would leave others waiting; call it in every step, and let the loss compute a few samples too"
)
OVERLAP_AFTER = 3  # steps without an out-of-memory on any rank, before gradients are sent while they are computed


class ReplicatedStep:
    """Gradients of this rank's part by ``eager``, then those of all ranks.

    ``gradients`` can be tried again; the all-reduce cannot, for the others are waited for. After some steps in which
    memory ran out nowhere, buckets of gradients are sent while the backward pass still runs.
    """

    def __init__(self, eager: EagerStep, ranks: Ranks) -> None:
        self.eager = eager
        self.ranks = ranks
        self.exchange = GradientExchange(ranks)
        self.overlap: Overlap | None = None
        self.session: GatherSession | None = None  # of this step, where the loss gathers from other ranks
        self.had_oom = False  # in this step, on this rank
        self._is_overlapping = False  # this step
        self._steps_since_oom = 0  # on any rank

    def begin(self, window: Sequence[Batch] = (), gathers: bool = False) -> bool:
        """Begin a step; True where its gradients are sent while they are computed, on all ranks alike.

        ``gathers``: whether its loss was seen to call brim.gather. Then ranks vote and exchange rows within it.
        """
        self.had_oom = False
        self.session = None
        if gathers and self.ranks.world > 1:
            self.session = GatherSession(self.ranks, list(map(batch_length, window)))
            self.overlap, self._is_overlapping = None, False
            return False
        if self.overlap is not None and not self.overlap.is_for(self.eager.trained):
            self.overlap, self._steps_since_oom = None, 0
        self._is_overlapping = self.overlap is not None and self._steps_since_oom >= OVERLAP_AFTER
        if self.overlap is not None and self._is_overlapping:
            self.overlap.begin()
        return self._is_overlapping

    def gradients(self, window: Sequence[Batch]) -> WindowLoss:
        """This rank's loss and gradients, and the memory that sending them takes."""
        own = self.own_gradients(window)
        self.eager.phase = EXCHANGE
        self.exchange.reserve(self.eager.trained)
        if self.session is None:
            self._prepare_overlap()
        return own

    def own_gradients(self, window: Sequence[Batch]) -> WindowLoss:
        """Those of its samples, over their number."""
        self.eager.clear_gradients()
        if self.session is not None:
            self.session.begin()
            return gathered_gradients(self.eager, window, self.session)
        own = [batch for batch in window if batch_length(batch)]
        with gathering(UNSEEN if self.ranks.world > 1 else Alone()):
            if self.overlap is None or not self._is_overlapping:
                return self.eager.backward(own)
            self.overlap.weight = sum(map(batch_length, own))
            return self.eager.backward(own, self.overlap.listening())

    def all_reduce_gradients(self, own: WindowLoss) -> Reduced:
        """The loss and the clipped gradient over all ranks."""
        reduced = self.exchange.all_reduce(self.eager.trained, own.loss, own.samples, self.had_oom)
        self._steps_since_oom = 0 if reduced.had_oom else self._steps_since_oom + 1
        self.eager.clip()
        return reduced

    def finish_overlapped(self, own: WindowLoss | None) -> Reduced | None:
        """The same where gradients were sent while they were computed; without ``own``, this rank ran out of memory.

        None where any rank did: then all make the step again, without overlap.
        """
        assert self.overlap is not None
        self._is_overlapping = False
        loss = Loss(torch.zeros(()), 0) if own is None else own.loss
        reduced = self.exchange.finish_overlapped(self.overlap, loss, had_oom=own is None)
        if reduced is None:
            self._steps_since_oom = NEVER if self.overlap.is_out_of_order else 0
            return None
        self.eager.clip()
        return reduced

    def report_failure(self) -> None:
        """Enter the exchange only to say that this rank cannot go on."""
        self.exchange.report_failure(self.eager.trained)

    def abandon_exchange(self) -> None:
        """An exchange broke off, and all ranks make the step again: what was sent is not waited for."""
        self._steps_since_oom, self._is_overlapping = min(self._steps_since_oom, 0), False

    def drop_overlap(self) -> bool:
        """Give its memory back; True if there was any."""
        had = self.overlap is not None
        self.overlap = None
        return had

    def _prepare_overlap(self) -> None:
        """In the last step before: take the memory for it. Without it, all ranks hear that memory ran out here."""
        if self.overlap is None and self._steps_since_oom == OVERLAP_AFTER - 1:
            try:
                self.overlap = Overlap(self.eager.trained)
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
            self.had_oom = self.had_oom or self.overlap is None
