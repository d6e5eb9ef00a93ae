"""Lower precision, on request: it changes the numbers."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook


def multiply_in_tf32() -> None:
    """Matrix products and convolutions of fp32 in TF32, unless the script itself says otherwise."""
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True


def compute_in_bf16() -> None:
    """Forward passes of the script's modules under autocast to bf16; what they return is fp32 again.

    The outermost call of a module switches it on: backward and optimizer stay outside of it, as they should. Weights
    that were cast are kept for one call only, since the optimizer changes them.
    """
    depth: list[torch.autocast | None] = []

    def enter(module: nn.Module, inputs: Any) -> None:
        if torch.compiler.is_compiling():
            return  # what compiles a module does it under autocast
        context = None
        if not depth:
            context = torch.autocast(_device_of(module, inputs), torch.bfloat16)
            context.__enter__()  # type: ignore[no-untyped-call]
        depth.append(context)

    def leave(module: nn.Module, inputs: Any, output: Any) -> Any:
        if torch.compiler.is_compiling():
            return None
        context = depth.pop() if depth else None
        if context is None:
            return None
        context.__exit__(None, None, None)
        return in_fp32(output)

    register_module_forward_pre_hook(enter)
    register_module_forward_hook(leave, always_call=True)


def _device_of(module: nn.Module, inputs: Any) -> str:
    tensors = [*module.parameters(), *(value for value in inputs if isinstance(value, Tensor))]
    return tensors[0].device.type if tensors else "cpu"


def in_fp32(output: Any) -> Any:
    """What a module returned, with bf16 tensors as fp32.

    >>> in_fp32((torch.ones(1, dtype=torch.bfloat16), "name"))
    (tensor([1.]), 'name')
    """
    if isinstance(output, Tensor):
        return output.float() if output.dtype == torch.bfloat16 else output
    if type(output) in (list, tuple):
        return type(output)(in_fp32(value) for value in output)
    if isinstance(output, dict):  # what transformers returns is one, of its own class
        for key, value in output.items():
            output[key] = in_fp32(value)
    return output
