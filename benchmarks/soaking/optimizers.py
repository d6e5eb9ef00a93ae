"""Optimizers and schedules by name, as users write them: names, mappings and functions."""

from collections.abc import Callable
from typing import Any

from torch.optim import SGD, Adagrad, AdamW, Optimizer, lr_scheduler
from torch.optim.lr_scheduler import LRScheduler


def _two_groups(parameters: Any) -> Optimizer:
    first, *others = list(parameters)
    return AdamW([{"params": [first], "lr": 3e-3}, {"params": others, "weight_decay": 0.1}], lr=1e-3)


def _chained(optimizer: Optimizer) -> LRScheduler:
    warm_up = lr_scheduler.LinearLR(optimizer, start_factor=0.2, total_iters=4)
    return lr_scheduler.SequentialLR(optimizer, [warm_up, lr_scheduler.ExponentialLR(optimizer, 0.9)], milestones=[4])


OPTIMIZERS: dict[str, Any] = {
    "AdamW": None,
    "momentum": {"name": "SGD", "momentum": 0.9, "nesterov": True},
    "amsgrad": {"name": "Adam", "amsgrad": True},
    "one by one": {"name": "AdamW", "foreach": False},
    "RMSprop": {"name": "RMSprop", "momentum": 0.5, "centered": True},
    "Adagrad": lambda parameters: Adagrad(parameters, lr=1e-2),
    "NAdam": "nadam",
    "RAdam": "radam",
    "two groups": _two_groups,
    "plain": lambda parameters: SGD(parameters, lr=1e-2),
}

SCHEDULERS: dict[str, str | dict[str, Any] | Callable[[Optimizer], Any] | None] = {
    "none": None,
    "cosine": "cosine",
    "linear": {"name": "linear", "warmup": 0.2, "floor": 0.1},
    "warm-up": {"name": "constant", "warmup": 5},
    "steps": lambda optimizer: lr_scheduler.StepLR(optimizer, 4, gamma=0.5),
    "one cycle": lambda optimizer: lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=200, cycle_momentum=False),
    "chained": _chained,
    "plateau": lambda optimizer: lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0),
}
