"""The loss of an evaluation, captured: a forward pass without gradients, proven and replayed like a step."""

import math
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from brim.data import Batch
from brim.engine.captured.host.host_state import HostLook, check_hooks
from brim.engine.captured.host.host_watch import HostWatch
from brim.engine.captured.host.waiting import as_if_capturing, no_waiting
from brim.engine.captured.inputs import Key, check_window, own_copy, read_window
from brim.engine.captured.no_exchange import no_exchange
from brim.engine.captured.proof.proof import are_same
from brim.engine.captured.proof.rounding import Rounding, rounding_of
from brim.engine.captured.proof.step_proof import device_generator
from brim.engine.captured.report import Refusal
from brim.engine.captured.static_inputs import CopiedInputs
from brim.engine.captured.trial import HOST_SHARE, LEAST_GAIN, capture_stream, is_compiled, reason_of
from brim.engine.components.loss import Loss
from brim.engine.components.precision import Precision
from brim.engine.oom.out_of_memory import release_memory
from brim.engine.sandbox.trial_call import trial_call

WARM_UP = 2  # eager batches of a shape before it is captured
MOST_GRAPHS = 4
STRETCHES, TIMED = 3, 5  # passes in each
Tell = Callable[..., None]


class CapturedLoss:
    """The summed loss of a batch in evaluation: eager at first, then replayed where that is proven and faster.

    Weights are read where they are, so a graph stays right while training moves them. Whatever else it takes for fixed
    is looked at when an evaluation begins.
    """

    def __init__(
        self,
        compute: Callable[[Batch], Loss],
        model: nn.Module,
        loss_fn: Any,
        precision: Precision,
        tell: Tell = lambda sentence, **facts: None,
        required: bool = False,
    ) -> None:
        self.compute = compute
        self.required = required  # whether it is captured even where that gains nothing
        self.model = model
        self.loss_fn = loss_fn
        self.precision = precision
        self.device = precision.device
        self.tell = tell
        self.reason = ""  # why it is eager for good
        self.replays = 0
        self.graphs: dict[Key, LossGraph] = {}
        self._pool: Any = None
        self._watch: HostWatch | None = None
        self._seen: dict[Key, int] = {}
        self._never: set[Key] = set()
        self._samples: dict[Key, Batch] = {}  # one of each shape, of before it is captured

    def begin(self) -> None:
        """Another evaluation: graphs of a model that has changed are dropped, and captured anew."""
        if self._watch is not None and self._watch.what_changed() is not None:
            self.drop()

    def __call__(self, batch: Batch) -> Loss:
        if self.reason:
            return self.compute(batch)
        tensors, key = read_window([batch])
        graph = self.graphs.get(key)
        if graph is None:
            seen = self._seen[key] = self._seen.get(key, 0) + 1
            if seen <= WARM_UP:
                self._keep_sample(batch, key)
                return self._watched(batch)
            if key not in self._never and len(self.graphs) < MOST_GRAPHS:
                graph = self._capture(batch, key)
            if graph is None:
                return self.compute(batch)
        self.replays += 1
        return graph.replay(tensors)

    def _keep_sample(self, batch: Batch, key: Key) -> None:
        """For the proof; of a few shapes, since there may be as many as batches."""
        self._samples.pop(key, None)
        while len(self._samples) >= MOST_GRAPHS:
            self._samples.pop(next(iter(self._samples)))
        self._samples[key] = own_copy([batch])[0]

    def drop(self) -> bool:
        """Give the graphs and their memory back; True if there was anything to give."""
        had = bool(self.graphs)
        self.graphs.clear()
        self._seen.clear()
        self._never.clear()
        self._samples.clear()
        self._pool = self._watch = None
        if had:
            release_memory(self.device)
        return had

    def give_way(self) -> bool:
        """Memory ran out elsewhere: graphs are a luxury."""
        had = self.drop()
        if had:
            self._refuse("its memory was needed for other steps")
        return had

    def _refuse(self, reason: str) -> None:
        self.reason = reason
        self._samples.clear()
        self.tell(f"evaluation is eager: {reason}", captured=False, reason=reason)

    def _watched(self, batch: Batch) -> Loss:
        """An eager pass that shows whether anything but its result comes of it: a graph would not repeat that."""
        look, drawn, versions = HostLook(self.model, self.loss_fn), device_generator(self.device), self._versions()
        loss = self.compute(batch)
        why = look.why_not_repeated("batch")
        if why is not None:
            self._refuse(why)
        elif not torch.equal(drawn, device_generator(self.device)):
            self._refuse("the model draws random numbers in evaluation")
        elif versions != self._versions():
            self._refuse("the model changes its buffers in evaluation")
        return loss

    def _versions(self) -> list[int]:
        return [buffer._version for buffer in self.model.buffers()]

    def _capture(self, batch: Batch, key: Key) -> "LossGraph | None":
        """Try it and prove it; None where it is refused."""
        graph: LossGraph | None = None
        try:
            check_hooks(self.model)
            check_window([batch])
            self._pool = self._pool or torch.cuda.graph_pool_handle()
            graph = LossGraph(self.compute, batch, is_compiled(self.compute, self.model))
            batches = [self._samples.pop(key, batch), batch]
            rounding = rounding_of(self.model, self.precision)
            with trial_call(self.model, self.loss_fn, device=self.device):
                gain = graph.prove(batches, rounding, self._pool, capture_stream(self.device), self.required)
            self.tell(
                f"evaluation is captured as a CUDA graph: {gain:.1f} times as fast; {graph.likeness}", captured=True
            )
        except Refusal as refusal:
            reason = str(refusal)
        except Exception as error:
            reason = reason_of(error, self.model)
        else:
            self.graphs[key] = graph
            self._watch = self._watch or HostWatch(self.model, self.loss_fn)
            return graph
        finally:
            torch.clear_autocast_cache()  # casts that were made while capturing lie in the graph's memory
        del graph
        self._never.add(key)
        release_memory(self.device)
        if not self.graphs:
            self._refuse(reason)
        return None


class LossGraph:
    """The forward pass for batches of one shape, replayed."""

    def __init__(self, compute: Callable[[Batch], Loss], batch: Batch, is_compiled: bool = False) -> None:
        self.compute = compute
        self.is_compiled = is_compiled
        self.inputs = CopiedInputs(own_copy([batch]))
        self.graph = torch.cuda.CUDAGraph()
        self._result: Loss | None = None
        self.likeness = "its sums are equal to the bit"

    def prove(
        self, batches: list[Batch], rounding: Rounding, pool: Any, stream: torch.cuda.Stream, required: bool = False
    ) -> float:
        """Capture, and compare with eager on these batches; how many times as fast it is."""
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            with no_waiting(), nullcontext() if self.is_compiled else as_if_capturing(), no_exchange():
                self._compute()
            eager_seconds, host_seconds = _time(self._compute)
            if not required and host_seconds < HOST_SHARE * eager_seconds:
                raise Refusal("the GPU is the limit, and capturing would gain nothing")
            with torch.cuda.graph(self.graph, pool=pool, stream=stream, capture_error_mode="thread_local"):
                self._result = self._compute()
            for batch in batches:
                self._compare(batch, rounding)
            captured_seconds, _ = _time(self.graph.replay)
        torch.cuda.synchronize()
        gain = eager_seconds / captured_seconds
        if not required and gain < LEAST_GAIN:
            raise Refusal(f"capturing was tried and gains nothing here ({gain:.2f} times as fast)")
        return gain

    def _compare(self, batch: Batch, rounding: Rounding) -> None:
        """A batch by the eager way, and by the graph, in whose memory nothing of another one is left."""
        torch.clear_autocast_cache()
        eager = self.compute(own_copy([batch])[0])
        self.inputs.poison()
        assert self._result is not None
        for value in (self._result.total, self._result.count):
            if isinstance(value, Tensor) and value.is_floating_point():
                value.fill_(math.nan)
        tensors = read_window([batch])[0]
        captured = self.replay(tensors)
        if not all(are_same(*pair) for pair in zip(read_window(self.inputs.window())[0], tensors, strict=True)):
            raise Refusal("a part of the batch does not reach the captured evaluation")
        if float(eager.count) != float(captured.count):
            raise Refusal(f"the captured evaluation counted {float(captured.count)} instead of {float(eager.count)}")
        apart = compare_totals(float(eager.total), float(captured.total), rounding)
        if apart:
            self.likeness = f"its sums are within {apart:.0e} ({rounding})"

    def _compute(self) -> Loss:
        torch.clear_autocast_cache()  # a cast from before would be that of weights from before
        return self.compute(self.inputs.window()[0])

    def replay(self, tensors: list[Tensor]) -> Loss:
        assert self._result is not None
        self.inputs.fill(tensors)
        self.graph.replay()
        count = self._result.count
        return Loss(self._result.total.clone(), count.clone() if isinstance(count, Tensor) else count)


def _time(run: Callable[[], Any]) -> tuple[float, float]:
    """Seconds of a pass, and seconds until the host is done with it: those of the quickest of a few stretches."""
    found = []
    for _ in range(STRETCHES):
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(TIMED):
            run()
        host = time.perf_counter() - began
        torch.cuda.synchronize()
        found.append(((time.perf_counter() - began) / TIMED, host / TIMED))
    return min(found)


def compare_totals(eager: float, captured: float, rounding: Rounding) -> float:
    """By which share two sums of losses differ; refuses where rounding does not explain it."""
    if eager == captured or (eager != eager and captured != captured):
        return 0.0
    if not (math.isfinite(eager) and abs(captured - eager) <= rounding.share * abs(eager)):
        raise Refusal(
            f"the captured evaluation has another result than the eager one ({captured} instead of {eager}, {rounding})"
        )
    return abs(captured - eager) / abs(eager)
