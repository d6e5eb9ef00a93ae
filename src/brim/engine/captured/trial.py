"""Capturing one step on trial: the same batches eager and captured from one state, which is put back in the end."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

from brim.data import Batch, batch_length, slice_batch
from brim.engine.captured.graph import StepGraph
from brim.engine.captured.host.host_state import check_hooks
from brim.engine.captured.host.host_watch import check_host
from brim.engine.captured.host.waiting import as_if_capturing, no_waiting
from brim.engine.captured.inputs import check_window, own_copy, read_window
from brim.engine.captured.no_exchange import no_exchange
from brim.engine.captured.optimizers import DeviceOptimizer, check_optimizer
from brim.engine.captured.padded.padding_proof import prove_padding
from brim.engine.captured.proof.comparison import Likeness
from brim.engine.captured.proof.rounding import Rounding, rounding_of
from brim.engine.captured.proof.step_proof import StepProof
from brim.engine.captured.proof.step_state import StateCopy, StepState
from brim.engine.captured.report import Refusal
from brim.engine.components.loss import Loss
from brim.engine.distributed.model_broadcast import norm_statistics
from brim.engine.oom.memory_watch import usable_memory
from brim.engine.oom.out_of_memory import is_out_of_memory, place_of
from brim.engine.sandbox.python_state import PythonState
from brim.engine.sandbox.trial_call import WritesFiles, trial_call
from brim.engine.step.eager_step import EagerStep
from brim.errors import said
from brim.sizes import show_bytes
from brim.uncompiled import module_within

HOST_SHARE = 0.5  # of a step's time: a host that needs less has nothing to gain
LEAST_GAIN = 1.05
TIMED_SECONDS = 0.2
SYNC = "called a synchronizing CUDA operation"
# What CUDA says when it breaks off.
CAPTURING = ("stream is capturing", "error during capture", "cudaErrorStreamCapture")
WAITS = "the host has to wait for a number from the GPU within the step"
IMPLICIT = ("legacy stream", "cudaErrorStreamCaptureImplicit")
# Gradients of a parameter are added up on the stream of the first pass whose graph is still alive.
ON_DEFAULT_STREAM = (
    "a part of the step works on the default stream, which a graph cannot have: a kernel of an extension, or a loss "
    "that is kept with its graph from an earlier step (keep loss.detach())"
)
Window = Sequence[Batch]


@dataclass(eq=False)
class Trial:
    """One attempt. Whatever comes of it, :meth:`take_back` puts the training state back where it was.

    The user's code runs in it several times; :meth:`run` leaves no trace of that in Python either. ``unpadded``: the
    windows as they came, where they have been padded on.
    """

    graph: StepGraph
    windows: Sequence[Window]
    model: nn.Module
    loss_fn: Any
    stream: torch.cuda.Stream
    pool: Any
    on_device: DeviceOptimizer
    moving: dict[str, Tensor] | None = None
    unpadded: Sequence[Window] = ()

    def __post_init__(self) -> None:
        self.eager_seconds = self.captured_seconds = 0.0
        self.pool_bytes = 0  # what the graph keeps for itself
        self.likeness: Likeness | None = None
        eager = self.graph.eager
        self.state = StepState(self.model, eager.optimizer, eager.precision, self.loss_fn, self.moving)
        self.start: StateCopy | None = self.state.copy()

    def run(self, required: bool) -> None:
        """Capture and prove; raises where that fails."""
        torch.cuda.synchronize()
        with torch.cuda.stream(self.stream), trial_call(self.model, self.loss_fn, device=self.state.device) as rewind:
            check_host(self.model, self.loss_fn, self._watch)
            self._go_back(rewind)
            self._time_eager(required)
            self._go_back(rewind)
            rounding = self._rounding()
            self._go_back(rewind)
            if self.unpadded:
                prove_padding(self.graph, self.model, self.unpadded, self.windows, self.state, rounding)
                self._go_back(rewind)
            self._capture()
            self._go_back(rewind)
            self.captured_seconds, _ = self._time(self.graph.replay)
            if not required:  # before the proof, which takes longest
                check_gain(self.eager_seconds / self.captured_seconds)
            self._go_back(rewind)
            self.likeness = self._prove(rounding)
        torch.cuda.empty_cache()  # what eager steps on this stream left behind, nobody else can use

    def _watch(self) -> None:
        """One pass that may not make the host wait for the device; it also warms up what is needed for capturing.

        What waits in eager steps only, and not while a stream is captured, is not in the way. Code that is compiled as
        a whole is not told that it is captured: it would be compiled anew.
        """
        versions = [buffer._version for buffer in self.model.buffers()]
        compute = self.graph.eager.compute
        is_told = is_compiled_by_blocks(compute) or not is_compiled(compute, self.model)
        with no_waiting(), as_if_capturing() if is_told else nullcontext():
            self._pass(self.graph.make_step)
        moved = versions != [buffer._version for buffer in self.model.buffers()]
        if self.graph.eager.skip_nonfinite and moved:
            raise Refusal("steps with bad numbers are left out, and what they did to buffers would have to be undone")

    def _time_eager(self, required: bool) -> None:
        self.eager_seconds, host = self._time(self.graph.make_step)
        if not required:
            check_host_share(host, self.eager_seconds, "step")
        if self.unpadded:  # an eager step computes less: at best so much less as its batch is smaller
            self.eager_seconds *= numbers_in(self.unpadded) / numbers_in(self.windows)

    def _rounding(self) -> Rounding:
        """How far rounding lets two results differ, from the operations of one forward pass."""
        eager = self.graph.eager
        batch = own_copy(self.windows[0])[0]
        if eager.micro_batch is not None:
            batch = slice_batch(batch, 0, min(eager.micro_batch, batch_length(batch)))
        with eager.precision.autocast(), no_exchange():
            loss = eager.compute(batch)
        return rounding_of(self.model, eager.precision, loss.total if isinstance(loss, Loss) else loss)

    def _capture(self) -> None:
        self._check_room()
        torch.cuda.empty_cache()
        before = torch.cuda.memory_reserved(self.state.device)
        self.graph.capture(self.pool, self.stream)
        self.pool_bytes = torch.cuda.memory_reserved(self.state.device) - before

    def _prove(self, rounding: Rounding) -> Likeness:
        python = PythonState(self.model, self.loss_fn)
        return StepProof(self.graph, self.windows, self.state, self.on_device, rounding, python).run()

    def _check_room(self) -> None:
        """A graph keeps the peak of its step for itself, beside what eager steps need now and then."""
        device = self.state.device
        standing, peak = torch.cuda.memory_allocated(device), torch.cuda.max_memory_allocated(device)
        needed, room = peak - standing, usable_memory(device) - standing
        if 2 * needed > room:
            raise Refusal(
                f"a captured step keeps {show_bytes(needed)} for itself, and with the {show_bytes(needed)} of an eager "
                f"one that is more than the {show_bytes(room)} there are"
            )

    def _go_back(self, rewind: Callable[[], None]) -> None:
        """Go back to where the trial began, in Python too."""
        rewind()
        self.take_back(for_good=False)

    def take_back(self, for_good: bool = True) -> None:
        """Restore the state of before the trial, in the same memory."""
        if self.start is None:
            return
        torch.cuda.synchronize()
        self.start.restore()
        self.graph.rates.refill()
        self.graph.clip.refill()
        self.graph.eager.precision.forget_unscaling()
        torch.cuda.synchronize()
        if for_good:
            self.start = None

    def _pass(self, step: Callable[[], Tensor]) -> None:
        """Run ``step`` on each window once."""
        for window in self.windows:
            self.graph.inputs.fill(read_window(window)[0])
            step()

    def _time(self, step: Callable[[], Tensor]) -> tuple[float, float]:
        """Seconds of a step, and seconds until the host is done with it."""
        took, host, passes = 0.0, 0.0, 0
        while took < TIMED_SECONDS:
            seconds, host_seconds = time_passes(lambda: self._pass(step), 1)
            took, host, passes = took + seconds, host + host_seconds, passes + 1
        steps = passes * len(self.windows)
        return took / steps, host / steps


def numbers_in(windows: Sequence[Window]) -> int:
    """How many numbers their tensors hold."""
    return sum(tensor.numel() for window in windows for tensor in read_window(window)[0])


def time_passes(run: Callable[[], Any], passes: int) -> tuple[float, float]:
    """Seconds of one of several passes, and seconds until the host is done with it."""
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(passes):
        run()
    host = time.perf_counter() - began
    torch.cuda.synchronize()
    return (time.perf_counter() - began) / passes, host / passes


def check_host_share(host: float, seconds: float, of: str) -> None:
    """Refuse where the host has to wait for the GPU anyway."""
    if host < HOST_SHARE * seconds:
        raise Refusal(
            f"the GPU is the limit, and capturing would gain nothing (the host needs {host * 1e3:.1f} of the "
            f"{seconds * 1e3:.1f} ms of a {of})"
        )


def check_gain(gain: float) -> None:
    if gain < LEAST_GAIN:
        raise Refusal(f"capturing was tried and gains nothing here ({gain:.2f} times as fast)")


def is_compiled(compute: Any, model: nn.Module) -> bool:
    """Whether torch.compile has a part in computing the loss."""
    parts = [compute, getattr(compute, "run", None)]
    if any(getattr(part, "is_compiled", False) is True for part in parts):
        return True
    return any(hasattr(part, "_torchdynamo_orig_callable") for part in parts) or any(
        module_within(module) is not module or module._compiled_call_impl is not None for module in model.modules()
    )


def is_compiled_by_blocks(compute: Any) -> bool:
    """Whether the code that calls what is compiled is plain Python, which is always told that it is captured."""
    return bool(getattr(getattr(compute, "run", None), "blocks", ()))


@cache
def capture_stream(device: torch.device) -> torch.cuda.Stream:
    """One for all captures of the process: libraries keep workspaces for every stream they have seen, until its end.

    torch hands out the same few streams again and again, and another thread that got this one would write into the
    capture. Those of high priority are another set, which hardly anybody asks for.
    """
    return torch.cuda.Stream(device, priority=-1)  # type: ignore[no-untyped-call]


def check_passes(eager: EagerStep, window: Window) -> None:
    """A second pass begins where generators stood in the first, and a graph has one way through them."""
    if eager.two_passes is None or eager.micro_batch is None:
        return
    if max(map(batch_length, window)) > eager.micro_batch:
        raise Refusal("the batch is computed in two passes (brim.TwoPass in micro-batches)")


def check_step(eager: EagerStep, model: nn.Module, window: Sequence[Batch]) -> None:
    """Refuse what can be told without trying."""
    if any(isinstance(module, DataParallel | DistributedDataParallel) for module in model.modules()):
        raise Refusal("the model is wrapped for several GPUs")
    if any(hasattr(parameter, "device_mesh") for parameter in model.parameters()):
        raise Refusal("the model is sharded over several GPUs")
    if eager.skip_nonfinite and norm_statistics(model):
        raise Refusal("steps with bad numbers are left out, and their part of a norm's statistics with them")
    check_optimizer(eager.optimizer)
    check_hooks(model)
    check_window(window)
    check_passes(eager, window)


def reason_of(error: BaseException, model: nn.Module) -> str:
    """Why capturing failed, with the line of the user's code where there is one."""
    if is_out_of_memory(error):
        return "there is no memory for a captured step beside the eager one"
    chain = list(_chain(error))
    if any(isinstance(one, WritesFiles) for one in chain):
        return "the step writes files or speaks to other programs, which a graph would not repeat"
    # A capture that broke off ends with an error of its own; the line is in the one that it broke off with.
    places = [place for one in reversed(chain) if (place := place_of(one, model))]
    where = f" ({places[0]})" if places else ""
    told = [str(one).strip() for one in chain]
    if any(word in one for one in told for word in IMPLICIT):
        return f"{ON_DEFAULT_STREAM}{where}"
    if any(SYNC in one for one in told) or any(word in one for one in told for word in CAPTURING):
        return f"{WAITS}{where}"
    return f"capturing failed{where}: {said(error)}"


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """The error, and what it was raised from or during."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def repair_generator(device: torch.device) -> None:
    """After a failed capture torch's generator may still believe in it: then it gets a fresh state with its numbers."""
    if device.type != "cuda":
        return
    try:
        with torch.random.fork_rng([device]):
            torch.empty(1, device=device).uniform_()
    except RuntimeError:
        generator = torch.cuda.default_generators[device.index or 0]
        generator.graphsafe_set_state(generator.graphsafe_get_state().clone_state())
