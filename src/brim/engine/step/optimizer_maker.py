"""The optimizer of a run, for the copies of a model that a forecast makes."""

from collections.abc import Callable
from typing import Any

from torch import nn
from torch.optim import Optimizer

from brim.engine.components.optimizer import make_optimizer
from brim.engine.step.resized import alike


def optimizer_maker(wanted: Any, lr: float) -> Callable[[Any], Optimizer]:
    """The optimizer that would train, for other parameters."""

    def make(parameters: Any) -> Optimizer:
        if isinstance(wanted, Optimizer):
            return alike(wanted, parameters)
        holder = nn.Module()
        for place, parameter in enumerate(parameters):
            holder.register_parameter(f"p{place}", parameter)
        return make_optimizer(wanted, holder, lr)

    return make
