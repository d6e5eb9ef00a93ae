"""The optimizer's state, made before its first step.

torch makes it within that step. Running out of memory in there cannot be undone, since some weights have moved; made
beforehand, the question is settled while nothing has.
"""

import inspect
from typing import Any

import torch
from torch import Tensor
from torch.optim import SGD, Optimizer


def allocate_state(optimizer: Optimizer) -> None:
    """Make the state of every parameter that has a gradient, exactly as the first step would find it.

    Where that fails nothing new is left: half a parameter's state would be taken for all of it.
    """
    before = {parameter for parameter, state in optimizer.state.items() if state}
    try:
        _allocate(optimizer)
    except Exception:
        for parameter in [parameter for parameter in optimizer.state if parameter not in before]:
            del optimizer.state[parameter]
        raise


@torch.no_grad()
def match_layouts(optimizer: Optimizer) -> None:
    """Let state lie in memory as its weights do, where these are channels_last, say, and a file has it row by row.

    Fused kernels of the CPU go through both as if they lay alike, and those of CUDA refuse them.
    """
    for parameter, state in optimizer.state.items():
        for name, value in state.items() if isinstance(parameter, Tensor) else ():
            is_like = isinstance(value, Tensor) and value.shape == parameter.shape and type(value) is Tensor
            if is_like and value.layout is torch.strided and value.stride() != parameter.stride():
                made = torch.empty_strided(value.shape, parameter.stride(), dtype=value.dtype, device=value.device)
                state[name] = made.copy_(value)


def _allocate(optimizer: Optimizer) -> None:
    for group in optimizer.param_groups:
        if type(optimizer) is SGD:
            _allocate_momentum(optimizer, group)
        elif type(optimizer).__module__.startswith("torch.optim") and hasattr(optimizer, "_init_group"):
            # torch's own way of making what is missing: it fills one list for each kind of state, and steps nothing.
            lists = [name for name in inspect.signature(optimizer._init_group).parameters if name != "group"]
            optimizer._init_group(group, *([] for _ in lists))
        # Somebody else's optimizer makes its state when it likes.


def _allocate_momentum(optimizer: Optimizer, group: dict[str, Any]) -> None:
    """The first step takes the gradient for the momentum; added to zeros, undamped, that is the same to the bit."""
    if group["momentum"] == 0 or group["dampening"] != 0:
        return
    for parameter in group["params"]:
        if parameter.grad is not None and optimizer.state[parameter].get("momentum_buffer") is None:
            optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter.grad)
