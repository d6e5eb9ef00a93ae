"""Running out of memory: recognising it, saying what asked for how much, and giving back what a failed try holds."""

import gc
import re
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from brim.engine.sandbox.error_origin import is_raised_in_python
from brim.sizes import bytes_of, show_bytes
from brim.user_line import is_users_own

# What torch and its libraries say, besides raising torch.OutOfMemoryError. Nothing of it is "out of memory" alone:
# errors of users may hold these words too.
PHRASES = (
    "CUDA out of memory",
    "CUDA error: out of memory",
    "CUDA driver error: out of memory",
    "HIP out of memory",
    "HIP error: out of memory",
    "MPS backend out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
    "CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED",
    "CUFFT_ALLOC_FAILED",
    "CUSPARSE_STATUS_ALLOC_FAILED",
    "CUSOLVER_STATUS_ALLOC_FAILED",
    "DefaultCPUAllocator: can't allocate memory",
    "DefaultCPUAllocator: not enough memory",
)
# The phases of a step in which it can happen.
FORWARD, BACKWARD, CLIPPING = "forward pass", "backward pass", "clipping"
EXCHANGE, STATE = "exchange of gradients", "optimizer's state"
UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out: by the type, or by what torch and its libraries say; also as the cause of another error.

    >>> is_out_of_memory(RuntimeError("CUDA error: out of memory"))
    True
    >>> is_out_of_memory(ValueError("the warehouse is out of memory modules"))
    False
    """
    for cause in causes_of(error):
        if isinstance(cause, torch.OutOfMemoryError | MemoryError):
            return True
        if isinstance(cause, RuntimeError) and _says_so(cause):
            return True
    return False


def _says_so(error: RuntimeError) -> bool:
    """Whether an error is in the words of torch and its libraries: as they say it, not quoted by somebody's code."""
    said = str(error)
    return said.startswith(PHRASES) if is_raised_in_python(error) else any(phrase in said for phrase in PHRASES)


def causes_of(error: BaseException) -> list[BaseException]:
    """The error, what it was raised from, and so on."""
    chain: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in chain:
        chain.append(cause)
        cause = cause.__cause__
    return chain


@dataclass(frozen=True)
class Shortage:
    """What is known of one failure, as plain data: nothing in it keeps the failed computation alive."""

    stage: str
    asked: int | None
    where: str
    held: dict[str, int]

    def sentence(self) -> str:
        """What was asked for, by whom, and what held the rest."""
        asked = "" if self.asked is None else f" ({show_bytes(self.asked)} more were asked for)"
        where = f", in {self.where}" if self.where else ""
        parts = ", ".join(f"{name} {show_bytes(size)}" for name, size in self.held.items() if size >= 1 << 20)
        return f"out of memory in the {self.stage}{where}{asked}" + (f"; held: {parts}" if parts else "")


def shortage_of(error: BaseException, stage: str, model: nn.Module | None, optimizer: Optimizer | None) -> Shortage:
    """Look at a failure while it is being handled."""
    said = " ".join(str(one) for one in causes_of(error))
    found = re.search(r"[Tt]ried to allocate ([\d.]+) (bytes|KiB|MiB|GiB)", said)
    asked = round(float(found[1]) * UNITS[found[2]]) if found else None
    return Shortage(stage, asked, place_of(error, model), held_by_part(model, optimizer))


def place_of(error: BaseException, model: nn.Module | None) -> str:
    """Where in the model and in the user's code an error arose, for whoever is handling it."""
    # Not the first frame, which is the one that handles the error and goes on: looking at the variables of a running
    # function keeps a copy of them, the error among them, and with it the whole failed computation.
    trace = error.__traceback__
    return _place(None if trace is None else trace.tb_next, model)


def _place(trace: TracebackType | None, model: nn.Module | None) -> str:
    """The innermost module of the model that was computing, and the line of the user's own code, where there is one."""
    names = {} if model is None else {id(module): name for name, module in model.named_modules()}
    module, line = "", ""
    for frame, number in traceback.walk_tb(trace):
        owner = frame.f_locals.get("self")
        if isinstance(owner, nn.Module) and id(owner) in names:
            module = names[id(owner)] or type(owner).__name__
        file = frame.f_code.co_filename
        if is_users_own(file):
            line = f"{file.rsplit('/', 1)[-1]}:{number}"
    return " at ".join(part for part in (module, line) if part)


def release_memory(device: torch.device, thoroughly: bool = True) -> None:
    """Give back what a failed try has left behind. Not inside ``except``: the exception keeps the computation alive.

    What a failed step leaves in cycles is young; looking through all of Python's objects takes longer than many a step.
    """
    gc.collect(2 if thoroughly else 1)
    if device.type == "cuda":
        torch.cuda.empty_cache()


def held_by_part(model: nn.Module | None, optimizer: Optimizer | None) -> dict[str, int]:
    """What is known to stand in memory, in bytes; on a GPU the rest of what torch has allocated as well."""
    parts = {"parameters": 0, "gradients": 0, "buffers": 0, "optimizer": 0}
    device = None
    if model is not None:
        for parameter in model.parameters():
            device = parameter.device
            parts["parameters"] += bytes_of(parameter)
            parts["gradients"] += 0 if parameter.grad is None else bytes_of(parameter.grad)
        parts["buffers"] = sum(bytes_of(buffer) for buffer in model.buffers())
    if optimizer is not None:
        parts["optimizer"] = sum(bytes_of(state) for state in optimizer_tensors(optimizer))
    if device is not None and device.type == "cuda":
        allocated = torch.cuda.memory_allocated(device)
        parts["activations and the rest"] = max(0, allocated - sum(parts.values()))
        parts["reserved and unused"] = max(0, torch.cuda.memory_reserved(device) - allocated)
    return parts


def optimizer_tensors(optimizer: Optimizer) -> Iterator[Tensor]:
    """The tensors of an optimizer's state."""
    for state in optimizer.state.values():
        for value in state.values():
            if isinstance(value, Tensor):
                yield value
