"""Parameters that are frozen when a run begins, and trained once somebody thaws them.

An optimizer that brim makes gets the parameters that are trained at the start: a function of the user's may rely on
that. ``AdamW(model.parameters())`` would train a layer from the moment on at which a callback thaws it, and so it is
here: it joins the optimizer when it is thawed, with the settings of its only group, or of the one that rules name for
it, as if it had been there all along. What was not frozen and is not held, the function has left out: it stays out.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.optim import SGD, Optimizer

from brim.engine.components.parameter_groups import LATE
from brim.engine.run_state.trained_parameters import held_by, trained_names
from brim.engine.state.weight_names import plain_name
from brim.errors import ConfigError

MOST_NAMES = 3


class ThawedParameters:
    """``may_join``: the parameters that the optimizer is to hold once they are trained."""

    def __init__(
        self, may_join: list[tuple[str, nn.Parameter]], optimizer: Optimizer, warn: Callable[[str], Any]
    ) -> None:
        self.optimizer = optimizer
        self.warn = warn
        self._own = may_join
        self.waiting = self._not_held()

    def restart(self) -> None:
        """The run has gone back to a checkpoint: the optimizer no longer holds what had joined since."""
        self.waiting = self._not_held()

    def _not_held(self) -> list[tuple[str, nn.Parameter]]:
        held = held_by(self.optimizer)
        return [(name, parameter) for name, parameter in self._own if id(parameter) not in held]

    def join(self) -> bool:
        """Add the parameters that were thawed since the last call to the optimizer; True if there were any."""
        thawed = [(name, parameter) for name, parameter in self.waiting if parameter.requires_grad]
        if not thawed:
            return False
        self.waiting = [(name, parameter) for name, parameter in self.waiting if not parameter.requires_grad]
        groups = self.optimizer.param_groups
        by_rule = [LATE in group for group in groups]
        if len(groups) == 1 or all(by_rule):
            for group in groups:
                own = [one for one in thawed if len(groups) == 1 or plain_name(one[0]) in group[LATE]]
                add_to_group(group, own)
                if isinstance(self.optimizer, SGD) and own:
                    start_momentum(self.optimizer, group, [parameter for _, parameter in own])
            return True
        names = ", ".join(name for name, _ in thawed[:MOST_NAMES])
        self.warn(
            f"{names}{' and others' if len(thawed) > MOST_NAMES else ''} can be trained from here on, and it is not "
            f"known to which of the optimizer's {len(groups)} groups they belong, so they stay as they are; let "
            "optimizer= hold them from the start, or call add_param_group where they are thawed"
        )
        return True


class UnshardedModel:
    """The user's model while a sharded copy of it is trained.

    Modes that callbacks set on it are copied to the trained one; freezing or thawing would have no effect there.
    """

    def __init__(self, model: nn.Module, copied: nn.Module) -> None:
        self.model = model
        self._at_start = trained_names(model)
        self.pull_modes(copied)

    def pull_modes(self, copied: nn.Module) -> None:
        """After a checkpoint was loaded: take the modes of the copy."""
        modes = {name: module.training for name, module in copied.named_modules()}
        for name, module in self.model.named_modules():
            module.training = modes.get(name, module.training)

    def push_modes(self, copied: nn.Module) -> None:
        """After callbacks: give the copy these modes; refuse what was frozen or thawed."""
        modes = {name: module.training for name, module in self.model.named_modules()}
        for name, module in copied.named_modules():
            module.training = modes.get(name, module.training)
        if trained_names(self.model) != self._at_start:
            raise ConfigError(
                "strategy='fsdp' trains a sharded copy, so freezing or thawing layers of trainer.model during a run "
                "has no effect; do so before fit, or use strategy='ddp'"
            )


def add_to_group(group: dict[str, Any], named: list[tuple[str, nn.Parameter]]) -> None:
    """Let a group of an optimizer have more parameters; their state is made when they first have a gradient."""
    group["params"].extend(parameter for _, parameter in named)
    if "param_names" in group:  # of an optimizer that was made of named parameters
        group["param_names"].extend(name for name, _ in named)


def start_momentum(optimizer: SGD, group: dict[str, Any], parameters: list[nn.Parameter]) -> None:
    """Give them the momentum that the fused SGD does not make beside parameters that have some.

    From zero the first step comes to the gradient itself, as it would otherwise; unless there is dampening.
    """
    if not (group["fused"] and group["momentum"]):
        return
    if group["dampening"]:
        raise ConfigError(
            "SGD(fused=True) with dampening cannot take in layers that are thawed during a run: give fused=False"
        )
    for parameter in parameters:
        optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
