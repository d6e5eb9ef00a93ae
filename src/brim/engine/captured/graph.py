"""One captured step."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from brim.data import Batch
from brim.engine.captured.exchanged_gradients import ExchangedGradients
from brim.engine.captured.inputs import BlockInputs, CopiedInputs, LossRing
from brim.engine.captured.optimizers import ClipLimit, LearningRates
from brim.engine.captured.report import Refusal
from brim.engine.components.loss import Loss
from brim.engine.numbers.pass_notes import LoggedNumber, Number
from brim.engine.step.eager_step import EagerStep


class StepGraph:
    """A step for windows of one shape, replayed.

    ``in_blocks``: the feed hands out rows of blocks that it never writes to again. ``ring``: for how many steps a loss
    must last; without it each is a copy, which lasts for ever. ``exchanged``: where ranks train together, what they
    exchange between one graph, for the gradients of each, and another one for the rest of the step.
    """

    def __init__(
        self,
        eager: EagerStep,
        window: Sequence[Batch],
        rates: LearningRates,
        in_blocks: bool = False,
        ring: int | None = None,
        exchanged: ExchangedGradients | None = None,
    ) -> None:
        self.eager = eager
        self.rates = rates
        self.inputs = BlockInputs(window) if in_blocks and BlockInputs.suit(window) else CopiedInputs(window)
        self.exchanged = exchanged
        self.clip = ClipLimit(eager)
        self.graph: torch.cuda.CUDAGraph | None = None
        self._graph_before_exchange: torch.cuda.CUDAGraph | None = None
        self.gradients: list[tuple[nn.Parameter, Tensor]] = []
        self._ring_size = ring
        self._ring: LossRing | None = None
        self._loss: Tensor | None = None
        self._numbers: list[LoggedNumber] = []
        self.is_on_trial = True  # until it is proven
        self.saved_seconds: float | None = None  # of a step, beside an eager one, as the trial has measured it

    def make_step(self) -> Tensor:
        """The step itself, on the graph's own inputs; of ranks, without an exchange."""
        self._before_exchange()
        return self._after_exchange()

    def _before_exchange(self) -> None:
        if self.exchanged is not None:
            self.exchanged.compute(self.inputs.window(), self.is_on_trial)

    def _after_exchange(self) -> Tensor:
        with self.clip.on_device():
            loss = self.eager.gradients(self.inputs.window()) if self.exchanged is None else self.exchanged.mean()
        with self.rates.on_device():
            self._loss = loss = self.eager.apply(loss).loss
        self._keep(loss)
        return loss

    def eager_gradients(self, window: Sequence[Batch]) -> Tensor:
        """What the step is held against: the loss of a window and its gradients, without anything of the graph's."""
        if self.exchanged is not None:
            return self.exchanged.of_this_rank(window, self.is_on_trial)
        return self.eager.gradients(window)

    def _keep(self, loss: Tensor) -> None:
        """The end of a step: its loss in the ring, and on to the next batch."""
        if self._ring is not None:
            self._ring.keep(loss)
        self.inputs.cursor.advance()

    def capture(self, pool: Any, stream: torch.cuda.Stream) -> None:
        """Record the step, which must have been made before on this stream."""
        assert self._loss is not None
        self.eager.clear_gradients()
        self._ring = None if self._ring_size is None else LossRing(self._ring_size, self._loss, self.inputs.cursor)
        self._record(pool, stream)
        self.gradients = [(p, p.grad) for p in self.eager.parameters if p.grad is not None]
        self._numbers = list(self.eager.numbers)
        if any(is_of_host(number.value, self.eager.precision.device) for number in self._numbers):
            raise Refusal("a number that the loss logs is the host's, and a graph would repeat it")

    def logged(self) -> list[LoggedNumber]:
        """What the loss logged in the last replay: it lies in the graph's memory, so copies of it."""
        return [LoggedNumber(name, _copy(value), _copy(count)) for name, value, count in self._numbers]

    def _record(self, pool: Any, stream: torch.cuda.Stream) -> None:
        if self.exchanged is None:
            self.graph = recorded(self.make_step, pool, stream)
            return
        self._graph_before_exchange = recorded(self._before_exchange, pool, stream)
        self.graph = recorded(self._after_exchange, pool, stream)

    def _run(self) -> None:
        assert self.graph is not None
        if self.exchanged is not None and self._graph_before_exchange is not None:
            self._graph_before_exchange.replay()
            if not self.is_on_trial:
                self.exchanged.all_reduce()
        self.graph.replay()

    def replay(self) -> Tensor:
        """The step for what the inputs hold."""
        assert self._loss is not None
        if self._ring is None:
            self._run()
            return self._loss.clone()
        self._ring.before_replay()
        self._run()
        return self._ring.take()

    def poison(self) -> None:
        """Fill everything that a replay has to write or to be given with what it never would: what is left shows."""
        for tensor in [gradient for _, gradient in self.gradients]:
            tensor.fill_(math.nan)
        if self._loss is not None:
            self._loss.fill_(math.nan)
        if self._ring is not None:
            self._ring.poison()
        self.inputs.poison()

    def shows_gradients(self) -> bool:
        """Whether the parameters still have them: somebody may have cleared them since."""
        return not self.gradients or self.gradients[0][0].grad is self.gradients[0][1]

    def show_gradients(self) -> None:
        """Let the parameters have the gradients that this graph writes: an eager step has given them others."""
        for parameter, gradient in self.gradients:
            parameter.grad = gradient


def is_of_host(value: Number, device: torch.device) -> bool:
    """Whether a number is not computed on the device: then the graph does not compute it."""
    value = value.total if isinstance(value, Loss) else value
    return not isinstance(value, Tensor) or value.device.type != device.type


def _copy(value: Any) -> Any:
    if isinstance(value, Loss):
        return Loss(value.total.clone(), _copy(value.count))
    return value.clone() if isinstance(value, Tensor) else value


def recorded(work: Callable[[], Any], pool: Any, stream: torch.cuda.Stream) -> torch.cuda.CUDAGraph:
    """A graph of what the device does in ``work``."""
    graph = torch.cuda.CUDAGraph()
    try:
        # Loader threads that pin memory and samplers of the driver go on meanwhile: only this thread is restricted.
        with torch.cuda.graph(graph, pool=pool, stream=stream, capture_error_mode="thread_local"):
            work()
    except BaseException:
        repair_allocator(stream.device, pool)
        raise
    return graph


def repair_allocator(device: torch.device, pool: Any) -> None:
    """After a capture that broke off torch's allocator still believes in it, and would from then on give nothing back.

    CUDAGraph::capture_end raises before it tells the allocator. While that believes in a capture, neither empty_cache()
    nor a shortage of memory releases anything, and what two streams have used (record_stream) is never used again.
    """
    index = torch.cuda.current_device() if device.index is None else device.index
    try:
        torch._C._cuda_endAllocateToPool(index, pool)
    except RuntimeError:  # it has been told: what failed was not the capture
        return
    torch._C._cuda_releasePool(index, pool)
