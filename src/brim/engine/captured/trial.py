"""Capturing one step on trial: the same batches eager and captured from one state, which is put back in the end."""

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

from brim.data import Batch
from brim.engine.captured.graph import StepGraph
from brim.engine.captured.host_state import check_hooks, check_host
from brim.engine.captured.inputs import check_window
from brim.engine.captured.optimizers import check_optimizer
from brim.engine.captured.proof import Outcome, compare
from brim.engine.captured.report import Refusal
from brim.engine.captured.state import StateCopy, StepState
from brim.engine.memory_watch import usable_memory
from brim.engine.out_of_memory import is_out_of_memory, place_of
from brim.engine.ranks import moving_buffers
from brim.engine.step import EagerStep
from brim.memory.sizes import show_bytes

HOST_SHARE = 0.5  # of a step's time: a host that needs less has nothing to gain
LEAST_GAIN = 1.05
TIMED_SECONDS = 0.2
RATES = (1.0, 0.5, 2.0)  # by which learning rates that move are moved in the proof
SYNC = "called a synchronizing CUDA operation"


class Trial:
    """One attempt. Whatever comes of it, :meth:`take_back` puts the training state back where it was."""

    def __init__(
        self,
        graph: StepGraph,
        samples: list[list[Tensor]],
        model: nn.Module,
        loss_fn: Any,
        stream: torch.cuda.Stream,
        pool: Any,
    ) -> None:
        self.graph = graph
        self.samples = samples
        self.model = model
        self.loss_fn = loss_fn
        self.stream = stream
        self.pool = pool
        self.eager_seconds = self.captured_seconds = 0.0
        self.pool_bytes = 0  # what the graph keeps for itself
        self.likeness = ""
        self.state = StepState(model, graph.eager.optimizer, graph.eager.precision)
        self.start: StateCopy | None = self.state.copy()

    def run(self, required: bool) -> None:
        """Capture and prove; raises where that fails."""
        torch.cuda.synchronize()
        with torch.cuda.stream(self.stream):
            versions = [buffer._version for buffer in self.model.buffers()]
            check_host(self.model, self.loss_fn, self._watch_for_waiting)
            moved = versions != [buffer._version for buffer in self.model.buffers()]
            if self.graph.eager.leaves_bad_out and moved:
                raise Refusal(
                    "steps with bad numbers are left out, and what they did to buffers would have to be undone"
                )
            eager = self._outcome(self.graph.make_step)
            again = self._outcome(self.graph.make_step)
            self.eager_seconds, host = self._time(self.graph.make_step)
            if not required and host < HOST_SHARE * self.eager_seconds:
                raise Refusal(
                    f"the GPU is the limit, and capturing would gain nothing (the host needs {host * 1e3:.1f} of the "
                    f"{self.eager_seconds * 1e3:.1f} ms of a step)"
                )
            self.take_back(for_good=False)
            self._check_room()
            torch.cuda.empty_cache()
            before = torch.cuda.memory_reserved(self.state.device)
            self.graph.capture(self.pool, self.stream)
            self.pool_bytes = torch.cuda.memory_reserved(self.state.device) - before
            captured = self._outcome(self.graph.replay)
            assert self.start is not None
            self.likeness = compare(self.start, eager, again, captured)
            del eager, again, captured
            self.captured_seconds, _ = self._time(self.graph.replay)
        gain = self.eager_seconds / self.captured_seconds
        if not required and gain < LEAST_GAIN:
            raise Refusal(f"capturing was tried and gains nothing here ({gain:.2f} times as fast)")

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

    def take_back(self, for_good: bool = True) -> None:
        """The state of before, in the memory of before."""
        if self.start is None:
            return
        torch.cuda.synchronize()
        self.start.restore()
        self.graph.rates.refill()
        torch.cuda.synchronize()
        if for_good:
            self.start = None

    def _watch_for_waiting(self) -> None:
        """One pass that may not make the host wait for the device; it also warms up what is needed for capturing."""
        with no_waiting():
            self._pass(self.graph.make_step)

    def _pass(self, step: Callable[[], Tensor]) -> list[Tensor]:
        """All samples once, with learning rates that move if they are to move."""
        losses = []
        for number, tensors in enumerate(self.samples):
            self.graph.inputs.fill(tensors)
            self.graph.rates.scale(RATES[number % len(RATES)])
            losses.append(step().detach().clone())
        return losses

    def _outcome(self, step: Callable[[], Tensor]) -> Outcome:
        self.take_back(for_good=False)
        losses = self._pass(step)
        torch.cuda.synchronize()
        return Outcome(self.state.copy(), torch.stack(losses).double().tolist())

    def _time(self, step: Callable[[], Tensor]) -> tuple[float, float]:
        """Seconds of a step, and seconds until the host is done with it."""
        took, host, steps = 0.0, 0.0, 0
        while took < TIMED_SECONDS:
            torch.cuda.synchronize()
            began = time.perf_counter()
            self._pass(step)
            host += time.perf_counter() - began
            torch.cuda.synchronize()
            took += time.perf_counter() - began
            steps += len(self.samples)
        return took / steps, host / steps


@contextmanager
def no_waiting() -> Iterator[None]:
    """Whatever makes the host wait for the device is an error."""
    mode = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that this mode is a prototype is of no interest to anybody's terminal
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(mode)


@cache
def capture_stream(device: torch.device) -> torch.cuda.Stream:
    """One for all captures: libraries keep workspaces for every stream they have seen.

    torch hands out the same few streams again and again, and another thread that got this one would write into the
    capture. Those of high priority are another set, which hardly anybody asks for.
    """
    return torch.cuda.Stream(device, priority=-1)  # type: ignore[no-untyped-call]


def check_step(eager: EagerStep, model: nn.Module, window: Sequence[Batch]) -> None:
    """What can be told without trying."""
    if any(isinstance(module, DataParallel | DistributedDataParallel) for module in model.modules()):
        raise Refusal("the model is wrapped for several GPUs")
    if any(hasattr(parameter, "device_mesh") for parameter in model.parameters()):
        raise Refusal("the model is sharded over several GPUs")
    if eager.leaves_bad_out and moving_buffers(model):
        raise Refusal("steps with bad numbers are left out, and their part of a norm's statistics with them")
    check_optimizer(eager.optimizer)
    check_hooks(model)
    check_window(window)


def reason_of(error: BaseException, model: nn.Module) -> str:
    """Why capturing failed, with the line of the user's code where there is one."""
    said = str(error).strip().splitlines()
    place = place_of(error, model)
    where = f" ({place})" if place else ""
    if is_out_of_memory(error):
        return "there is no memory for a captured step beside the eager one"
    if SYNC in str(error):
        return f"the host has to wait for a number from the GPU within the step{where}"
    return f"capturing failed{where}: {type(error).__name__}: {said[0][:200] if said else ''}"


def repair_generator(device: torch.device) -> None:
    """After a failed capture torch's generator may still believe in it: then it gets a fresh state with its numbers."""
    try:
        with torch.random.fork_rng([device]):
            torch.empty(1, device=device).uniform_()
    except RuntimeError:
        generator = torch.cuda.default_generators[device.index or 0]
        generator.graphsafe_set_state(generator.graphsafe_get_state().clone_state())
