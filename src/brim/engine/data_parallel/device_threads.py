"""Threads that compute on several devices at the same time, for one thread that waits for them."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeVar

import torch

from brim.engine.data_parallel.replicas import ONE_GPU
from brim.engine.oom.out_of_memory import is_out_of_memory
from brim.errors import ConfigError, first_line

Result = TypeVar("Result")
# What torch and cuDNN say of a tensor that stands on another device than the rest.
ELSEWHERE = ("on the same device", "at the same device", "different from other tensors on")


def compute_side_by_side(tasks: Sequence[Callable[[], Result]], devices: Sequence[torch.device]) -> list[Result]:
    """Run every task on its device, all but the first in threads of their own; nothing is left running after it.

    Not ``parallel_apply``: its threads forget which type autocast computes in (bf16 becomes fp16), and it raises errors
    anew, without the place they come from.
    """
    places = [_at(device) for device in devices]
    modes = [_modes_of_this_thread(device.type) for device in devices]
    outcomes: list[Any] = [RuntimeError(f"the thread for {device} ended without a result") for device in devices]

    def work(number: int) -> None:
        try:
            with modes[number], places[number]:
                outcomes[number] = tasks[number]()
        except BaseException as error:
            outcomes[number] = error

    threads = [threading.Thread(target=work, args=(number,)) for number in range(1, len(tasks))]
    try:
        for thread in threads:
            thread.start()
        work(0)
    finally:
        for thread in threads:
            if thread.ident is not None:  # else it could not be started
                thread.join()
    error = _first_error(outcomes, devices)
    if error is None:
        return outcomes
    # An error that is reachable from the frames in its traceback would keep all their tensors until Python looks for
    # cycles: memory that a second try needs.
    outcomes.clear()
    try:
        raise error
    finally:
        del error


def _first_error(outcomes: Sequence[Any], devices: Sequence[torch.device]) -> BaseException | None:
    """The error that is raised: one that smaller micro-batches would not cure comes first."""
    failed = [(number, error) for number, error in enumerate(outcomes) if isinstance(error, BaseException)]
    if not failed:
        return None
    number, error = min(failed, key=lambda one: (is_out_of_memory(one[1]), one[0]))
    if number and isinstance(error, RuntimeError) and any(phrase in str(error) for phrase in ELSEWHERE):
        told = ConfigError(
            f"on {devices[number]} the loss met a tensor of another GPU: what the model uses and does not own is not "
            f"copied with it; make it a buffer, take it from the batch, {ONE_GPU} ({first_line(error)})"
        )
        told.__cause__ = error
        return told
    return error


def _at(device: torch.device) -> AbstractContextManager[Any]:
    """The device, and the stream that this thread uses there: copies to and from it wait for that one."""
    if device.type != "cuda":
        return nullcontext()
    return torch.cuda.stream(torch.cuda.current_stream(device))


@contextmanager
def _modes(grad: bool, inference: bool, autocast: AbstractContextManager[Any]) -> Iterator[None]:
    with torch.inference_mode(inference), torch.set_grad_enabled(grad), autocast:
        yield


def _modes_of_this_thread(device_type: str) -> AbstractContextManager[None]:
    """What torch keeps for each thread, to be taken into another one."""
    autocast: AbstractContextManager[Any] = nullcontext()
    if torch.is_autocast_enabled(device_type):
        dtype = torch.get_autocast_dtype(device_type)
        autocast = torch.autocast(device_type, dtype, cache_enabled=torch.is_autocast_cache_enabled())
    return _modes(torch.is_grad_enabled(), torch.is_inference_mode_enabled(), autocast)
