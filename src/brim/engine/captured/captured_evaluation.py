"""The loss of an evaluation, captured: a forward pass without gradients, proven and replayed like a step."""

import math
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from brim.data import Batch
from brim.engine.captured.graph import recorded
from brim.engine.captured.graph_cache import MOST_GRAPHS, GraphCache
from brim.engine.captured.graph_outputs import check_outputs, copied, difference, poison
from brim.engine.captured.host.host_state import check_hooks
from brim.engine.captured.host.host_watch import HostLook, HostWatch
from brim.engine.captured.host.waiting import as_if_capturing, no_waiting
from brim.engine.captured.inputs import CopiedInputs, Key, check_window, own_copy, read_window
from brim.engine.captured.no_exchange import no_exchange
from brim.engine.captured.proof.comparison import are_same
from brim.engine.captured.proof.rounding import Rounding, rounding_of
from brim.engine.captured.proof.step_proof import device_generator
from brim.engine.captured.report import Refusal
from brim.engine.captured.trial import (
    capture_stream,
    check_gain,
    check_host_share,
    is_compiled,
    repair_generator,
    time_passes,
)
from brim.engine.components.loss import Loss
from brim.engine.components.precision import Precision
from brim.engine.numbers.observed_pass import ObservedPass
from brim.engine.sandbox.trial_call import trial_call
from brim.engine.step.splitting_check import Tell

WARM_UP = 2  # eager batches of a shape before it is captured
STRETCHES, TIMED = 3, 5  # passes in each
ATTEMPT_SECONDS = 0.5  # what capturing and proving takes, for models of ordinary size


@dataclass(eq=False)
class CapturedLoss:
    """The summed loss of a batch in evaluation: eager at first, then replayed where that is proven and faster.

    Weights are read where they are, so a graph stays right while training moves them. Whatever else it takes for fixed
    is looked at when an evaluation begins. Outputs that metrics need come of the same pass.

    ``required``: it is captured even where that gains nothing. ``after_seconds``: of eager passes, before anything is
    tried. Graphs of an evaluation that is made once end with it, and it is not known how long it will take: who tries
    once it has lasted as long as an attempt takes, loses at most as much again.
    """

    compute: Callable[[Batch], ObservedPass[Loss]]
    model: nn.Module
    loss_fn: Any
    precision: Precision
    tell: Tell = lambda sentence, **facts: None
    required: bool = False
    after_seconds: float = 0.0
    clock: Callable[[], float] = time.perf_counter

    def __post_init__(self) -> None:
        self.device = self.precision.device
        self.cache: GraphCache[LossGraph] = GraphCache(
            self.model, self.device, WARM_UP, 1, "evaluation is", self.tell, sampled_shapes=MOST_GRAPHS
        )
        self.report, self.graphs = self.cache.report, self.cache.graphs
        self._watch: HostWatch | None = None
        self._began: float | None = None

    def begin(self) -> None:
        """Another evaluation: graphs of a model that has changed are dropped, and captured anew."""
        if self._watch is not None and self._watch.what_changed() is not None:
            self.drop()

    def __call__(self, batch: Batch) -> ObservedPass[Loss]:
        if self.report.reason:
            return self.compute(batch)
        self._began = self.clock() if self._began is None else self._began
        tensors, key = read_window([batch])
        if key in self.graphs or (self._is_due(key) and self._capture(batch, key)):
            self.report.replays += 1
            return self.graphs[key].replay(tensors)
        is_watched = self.cache.note_eager_pass([batch], key) <= WARM_UP
        return self._watched(batch) if is_watched else self.compute(batch)

    def _is_due(self, key: Key) -> bool:
        assert self._began is not None
        is_late = self.required or self.clock() - self._began >= self.after_seconds
        return is_late and self.cache.is_due(key) and len(self.graphs) < MOST_GRAPHS

    def drop(self) -> bool:
        """Give the graphs and their memory back; True if there was anything to give."""
        self.cache.forget_shapes()
        self._watch = None
        return self.cache.drop()

    def refuse(self, reason: str) -> None:
        """Every evaluation is eager from here on."""
        self.cache.refuse(reason)

    def _watched(self, batch: Batch) -> ObservedPass[Loss]:
        """An eager pass that shows whether anything but its result comes of it: a graph would not repeat that."""
        look, drawn, versions = HostLook(self.model, self.loss_fn), device_generator(self.device), self._versions()
        found = self.compute(batch)
        why = look.why_not_repeated("batch")
        if why is None and not torch.equal(drawn, device_generator(self.device)):
            why = "the model draws random numbers in evaluation"
        if why is None and versions != self._versions():
            why = "the model changes its buffers in evaluation"
        if why is not None:
            self.refuse(why)
        return found

    def _versions(self) -> list[int]:
        return [buffer._version for buffer in self.model.buffers()]

    def _capture(self, batch: Batch, key: Key) -> bool:
        """Try it and prove it; False where it is refused."""
        reason = self.cache.attempt(
            key, lambda samples: self._attempt(batch, samples), lambda: repair_generator(self.device)
        )
        if reason and not self.graphs:
            self.refuse(reason)
        return not reason

    def _attempt(self, batch: Batch, samples: list[list[Batch]]) -> "LossGraph":
        """A graph for batches like this one, proven; raises where it is refused."""
        check_hooks(self.model)
        check_window([batch])
        graph = LossGraph(self.compute, batch, is_compiled(self.compute, self.model))
        batches = [samples[0][0] if samples else batch, batch]
        rounding, stream = rounding_of(self.model, self.precision), capture_stream(self.device)
        try:
            with trial_call(self.model, self.loss_fn, device=self.device):
                gain = graph.prove(batches, rounding, self.cache.pool, stream, self.required)
        finally:
            torch.clear_autocast_cache()  # casts that were made while capturing lie in the graph's memory
        self.tell(f"evaluation is captured as a CUDA graph: {gain:.1f} times as fast; {graph.likeness}", captured=True)
        self._watch = self._watch or HostWatch(self.model, self.loss_fn)
        return graph


class LossGraph:
    """The forward pass for batches of one shape, replayed."""

    def __init__(self, compute: Callable[[Batch], ObservedPass[Loss]], batch: Batch, is_compiled: bool = False) -> None:
        self.compute = compute
        self.is_compiled = is_compiled
        self.inputs = CopiedInputs([batch])
        self.graph: torch.cuda.CUDAGraph | None = None
        self._found: ObservedPass[Loss] | None = None
        self.likeness = "its sums are equal to the bit"

    def prove(
        self, batches: list[Batch], rounding: Rounding, pool: Any, stream: torch.cuda.Stream, required: bool = False
    ) -> float:
        """Capture, and compare with eager on these batches; how many times as fast it is."""
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            with no_waiting(), nullcontext() if self.is_compiled else as_if_capturing(), no_exchange():
                self._compute()
            self._check_found()
            eager_seconds, host_seconds = self._time(self._compute)
            if not required:
                check_host_share(host_seconds, eager_seconds, "pass")
            self.graph = recorded(self._compute, pool, stream)
            for batch in batches:
                self._compare(batch, rounding)
            captured_seconds, _ = self._time(self.graph.replay)
        torch.cuda.synchronize()
        gain = eager_seconds / captured_seconds
        if not required:
            check_gain(gain)
        return gain

    def _time(self, run: Callable[[], Any]) -> tuple[float, float]:
        """Seconds of a pass, and seconds until the host is done with it, in the quickest of a few stretches."""
        return min(time_passes(run, TIMED) for _ in range(STRETCHES))

    def _compare(self, batch: Batch, rounding: Rounding) -> None:
        """A batch by the eager way, and by the graph, in whose memory nothing of another one is left."""
        torch.clear_autocast_cache()
        eager = self.compute(own_copy([batch])[0])
        self.inputs.poison()
        assert self._found is not None
        poison((self._found.result.total, self._found.result.count, self._found.outputs))
        tensors = read_window([batch])[0]
        captured = self.replay(tensors)
        if not all(are_same(*pair) for pair in zip(read_window(self.inputs.window())[0], tensors, strict=True)):
            raise Refusal("a part of the batch does not reach the captured evaluation")
        counts = float(eager.result.count), float(captured.result.count)
        if counts[0] != counts[1]:
            raise Refusal(f"the captured evaluation counted {counts[1]} instead of {counts[0]}")
        apart = compare_totals(float(eager.result.total), float(captured.result.total), rounding)
        outputs_apart = difference(eager.outputs, captured.outputs)
        if outputs_apart > rounding.share:
            raise Refusal(f"the captured evaluation has other outputs than the eager one ({rounding})")
        apart = max(apart, outputs_apart)
        if apart:
            what = "its sums are" if self._found.outputs is None else "its sums and outputs are"
            self.likeness = f"{what} within {apart:.0e} ({rounding})"

    def _compute(self) -> None:
        torch.clear_autocast_cache()  # a cast from before would be that of weights from before
        self._found = self.compute(self.inputs.window()[0])

    def _check_found(self) -> None:
        """What a replay could not give back: what is logged, and outputs that are not made of tensors."""
        assert self._found is not None
        if self._found.numbers:
            raise Refusal("the loss logs numbers, which a graph would not repeat")
        check_outputs(self._found.outputs)

    def replay(self, tensors: list[Tensor]) -> ObservedPass[Loss]:
        """Copies of what the pass gives: metrics may keep them, and the next replay writes over its own."""
        assert self._found is not None and self.graph is not None
        self.inputs.fill(tensors)
        self.graph.replay()
        result = self._found.result
        return ObservedPass(Loss(*copied((result.total, result.count))), copied(self._found.outputs), [])


def compare_totals(eager: float, captured: float, rounding: Rounding) -> float:
    """By which share two sums of losses differ; refuses where rounding does not explain it."""
    if eager == captured or (eager != eager and captured != captured):
        return 0.0
    if not (math.isfinite(eager) and abs(captured - eager) <= rounding.share * abs(eager)):
        raise Refusal(
            f"the captured evaluation has another result than the eager one ({captured} instead of {eager}, {rounding})"
        )
    return abs(captured - eager) / abs(eager)
