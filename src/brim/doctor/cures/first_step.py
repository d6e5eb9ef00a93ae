"""What is changed when the first step is about to be made: then model, data and optimizer are there."""

import gc
from typing import Any

import torch
from torch.optim import SGD, Adagrad, Adam, AdamW, Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook


def fuse_at_first_step() -> None:
    """Optimizers that have a fused form of the same update use it from their first step on."""
    seen: set[int] = set()

    def fuse(optimizer: Optimizer, *_: Any) -> None:
        if id(optimizer) not in seen:
            seen.add(id(optimizer))
            if can_be_fused(optimizer):
                for group in optimizer.param_groups:
                    group.update(foreach=False, fused=True)

    register_optimizer_step_pre_hook(fuse)


def can_be_fused(optimizer: Optimizer) -> bool:
    """Whether an optimizer has a fused form that it does not use, for all of its parameters.

    >>> weight = torch.nn.Parameter(torch.ones(2))
    >>> can_be_fused(Adam([weight])), can_be_fused(torch.optim.LBFGS([weight]))
    (True, False)
    """
    group = optimizer.param_groups[0]
    if type(optimizer) not in (Adam, AdamW, SGD, Adagrad) or group.get("fused") or group.get("differentiable"):
        return False
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    return all(type(p) in (torch.Tensor, torch.nn.Parameter) and p.is_floating_point() for p in parameters)


def freeze_garbage_at_first_step() -> None:
    """What is alive then is not looked at by the garbage collector any more."""
    done: list[bool] = []

    def freeze(*_: Any) -> None:
        if not done:
            done.append(True)
            gc.collect()
            gc.freeze()

    register_optimizer_step_pre_hook(freeze)
