"""Model code that names the GPU, on a machine that need not have one."""

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

CPU = torch.device("cpu")


def _is_gpu(value: Any) -> bool:
    if isinstance(value, torch.device):
        return value.type == "cuda"
    return isinstance(value, str) and (value == "cuda" or value.startswith("cuda:"))


class GpuMeansHere(TorchFunctionMode):
    """``.cuda()``, ``.to("cuda")``, ``device="cuda"`` and pinned memory mean the device of the forecast."""

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if function is torch.Tensor.cuda:
            return args[0]
        if function is torch.Tensor.pin_memory:
            return args[0]
        if kwargs.get("pin_memory"):
            kwargs["pin_memory"] = False
        if _is_gpu(kwargs.get("device")) or type(kwargs.get("device")) is int:
            kwargs["device"] = CPU
        if function is torch.Tensor.to and len(args) > 1 and type(args[1]) is int:
            args = (args[0], CPU, *args[2:])
        if any(_is_gpu(value) for value in args[1:3]):
            args = tuple(CPU if _is_gpu(value) else value for value in args)
        return function(*args, **kwargs)
