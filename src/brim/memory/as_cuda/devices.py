"""Model code that names the GPU, or asks whether it is on one, on a machine that need not have one."""

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.overrides import TorchFunctionMode

from brim.replaced import replaced
from brim.user_line import is_of_job

CPU = torch.device("cpu")
GPU = torch.device("cuda", 0)


def _is_gpu(value: Any) -> bool:
    if isinstance(value, torch.device):
        return value.type == "cuda"
    return isinstance(value, str) and (value == "cuda" or value.startswith("cuda:"))


class GpuMeansHere(TorchFunctionMode):
    """``.cuda()``, ``.to("cuda")``, ``.to(0)``, ``device="cuda"`` and pinned memory mean the device of the forecast."""

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if function is Tensor.cuda or function is Tensor.pin_memory:
            return args[0]
        if kwargs.get("pin_memory"):
            kwargs["pin_memory"] = False
        if _is_gpu(kwargs.get("device")) or type(kwargs.get("device")) is int:
            kwargs["device"] = CPU
        args = _with_the_cpu(function, args)
        return function(*args, **kwargs)


def _with_the_cpu(function: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments, a GPU among them replaced; a number is one only where a device is expected."""
    place = 1 if function is Tensor.to else 0  # Module.to hands its arguments to _parse_to, without the module
    may_be_number = function is Tensor.to or function is torch._C._nn._parse_to
    if may_be_number and len(args) > place and type(args[place]) is int:
        return (*args[:place], CPU, *args[place + 1 :])
    if any(_is_gpu(value) for value in args[1:3]):
        return tuple(CPU if _is_gpu(value) else value for value in args)
    return args


def models_see_the_gpu() -> AbstractContextManager[None]:
    """Fake tensors are on the GPU to the code of the user; torch itself needs to know where they are."""
    where = FakeTensor.device.fget  # type: ignore[attr-defined]

    def device(self: FakeTensor) -> torch.device:
        return GPU if _seems_on_the_gpu(self, sys._getframe(1)) else where(self)

    def is_cuda(self: FakeTensor) -> bool:
        return _seems_on_the_gpu(self, sys._getframe(1))

    return replaced(
        (FakeTensor, "device", property(device)),
        (FakeTensor, "is_cuda", property(is_cuda)),
        (torch, "Generator", _Generator),
    )


class _Generator(torch.Generator):
    """A generator on the GPU, which no mode sees being made."""

    def __new__(cls, device: Any = "cpu") -> "_Generator":
        here = CPU if _is_gpu(device) and _gpu_means_here() else device
        return super().__new__(cls, here)  # type: ignore[call-arg]


def _seems_on_the_gpu(tensor: FakeTensor, asked_in: FrameType) -> bool:
    """Whether a fake tensor is on the GPU for the code that asks: only where that code can make tensors there too."""
    return tensor.fake_device.type == "cpu" and is_asked_by_job(asked_in)


def is_asked_by_job(asked_in: FrameType) -> bool:
    """Whether code of the job that is forecast asks, in the thread of the forecast."""
    return _gpu_means_here() and is_of_job(asked_in.f_code.co_filename)


def _gpu_means_here() -> bool:
    """In this thread, outside of torch's own functions."""
    return torch._C._len_torch_function_stack() > 0
