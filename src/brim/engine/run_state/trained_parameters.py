"""Which parameters a run trains and its optimizer holds, and which modules are in eval mode: kept, and brought back.

Layers may be frozen and thawed, and norms switched, before a run, by a callback during it, and by whoever resumes it. A
resumed run has them as the run had, unless the user has changed them since; one that goes back to a checkpoint has them
as they were.
"""

from dataclasses import dataclass
from typing import Any

from torch import nn
from torch.optim import Optimizer

from brim.engine.state.weight_names import bare

Groups = list[list[str | None]]


@dataclass(frozen=True)
class Trained:
    """The parameters that gradients are wanted for, what the optimizer's groups hold, and the modules in eval mode."""

    names: list[str]
    groups: Groups
    in_eval: list[str]


class TrainedParameters:
    """Those of one run. ``joins``: whether brim made the optimizer, which thawed parameters then join by themselves."""

    def __init__(self, model: nn.Module, optimizer: Optimizer, joins: bool) -> None:
        self.model = model
        self.optimizer = optimizer
        self.joins = joins
        # What is trained and not held has been left out by the function that made the optimizer.
        held, named = held_by(optimizer), list(model.named_parameters()) if joins else []
        self.may_join = [one for one in named if id(one[1]) in held or not one[1].requires_grad]
        # What was trained whenever the run was begun or resumed, before anything of it had run: a script that is
        # resumed comes with the first of them, a model that has been through a part of the run with a later one.
        self._at_starts = [trained_names(model)]
        self._in_eval_at_starts = [names_in_eval(model)]
        self._begun: tuple[int, Trained] | None = None

    def state(self) -> dict[str, Any]:
        return {
            "parameter_names": group_names(self.model, self.optimizer),
            "trained": trained_names(self.model),
            "trained_at_starts": self._at_starts,
            "in_eval": names_in_eval(self.model),
            "in_eval_at_starts": self._in_eval_at_starts,
        }

    def begin(self, step: int) -> None:
        """The loop begins after ``step``: what it was left with, and what callbacks have made of that."""
        groups = group_names(self.model, self.optimizer)
        self._begun = step, Trained(trained_names(self.model), groups, names_in_eval(self.model))

    def resume(self, saved: dict[str, Any]) -> list[str]:
        """Freeze and thaw as the run had, and let the optimizer hold what it held; returns what to tell the user."""
        if "trained" not in saved:
            return []
        told = self._take_modes(saved)
        then, now = saved["trained"], trained_names(self.model)
        starts = saved.get("trained_at_starts") or [saved["trained_at_start"]]
        if now in starts or now == then:
            set_trained(self.model, then)
            self._at_starts = [*starts, *([] if now in starts else [now])]
        else:  # the user has changed it since, which counts
            told.append("other layers are frozen than those that were when the checkpoint was made")
        take_groups(self.model, self.optimizer, saved["parameter_names"], drops=self.joins)
        return told

    def _take_modes(self, saved: dict[str, Any]) -> list[str]:
        """The same for the modes of modules, which checkpoints of earlier versions do not have."""
        now = names_in_eval(self.model)
        then, starts = saved.get("in_eval", now), saved.get("in_eval_at_starts", [now])
        if now not in starts and now != then:
            return ["other modules are in eval mode than those that were when the checkpoint was made"]
        set_in_eval(self.model, then)
        self._in_eval_at_starts = [*starts, *([] if now in starts else [now])]
        return []

    def go_back(self, saved: dict[str, Any], step: int) -> None:
        """As the run had it after ``step``. The checkpoint that it began from has it as the run before did."""
        if self._begun is not None and (self._begun[0] == step or "in_eval" not in saved):
            then = self._begun[1]
        else:
            then = Trained(saved["trained"], saved["parameter_names"], saved["in_eval"])
        set_trained(self.model, then.names)
        set_in_eval(self.model, then.in_eval)
        put_back_groups(self.model, self.optimizer, then.groups)


def names_in_eval(model: nn.Module) -> list[str]:
    """The modules that are not in training mode, without what wrappers put into names.

    >>> names_in_eval(nn.Sequential(nn.Linear(2, 1), nn.Dropout().eval()))
    ['1']
    """
    return [bare(name) for name, module in model.named_modules() if not module.training]


def set_in_eval(model: nn.Module, names: list[str]) -> None:
    """Let these modules be in eval mode, and no others; one by one, so without ``train`` of the user's."""
    wanted = set(names)
    for name, module in model.named_modules():
        module.training = bare(name) not in wanted


def trained_names(model: nn.Module) -> list[str]:
    """The parameters that gradients are wanted for, without what wrappers put into names.

    >>> trained_names(nn.Linear(2, 1))
    ['weight', 'bias']
    """
    return [bare(name) for name, parameter in model.named_parameters() if parameter.requires_grad]


def set_trained(model: nn.Module, names: list[str]) -> None:
    """Let gradients be wanted for these parameters, and for no others."""
    wanted = set(names)
    for name, parameter in model.named_parameters():
        if parameter.requires_grad != (bare(name) in wanted):
            parameter.requires_grad_(bare(name) in wanted)


def held_by(optimizer: Optimizer) -> set[int]:
    """The parameters of all its groups, by identity."""
    return {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}


def group_names(model: nn.Module, optimizer: Optimizer) -> Groups:
    """What each group of the optimizer holds; None for a parameter that is not the model's."""
    names = {id(parameter): bare(name) for name, parameter in model.named_parameters()}
    return [[names.get(id(parameter)) for parameter in group["params"]] for group in optimizer.param_groups]


def take_groups(model: nn.Module, optimizer: Optimizer, wanted: Groups, drops: bool = False) -> None:
    """Let the optimizer hold what that of a checkpoint held, in its order: parameters may have joined it meanwhile.

    Where that one held something that is not the model's, or other things altogether, it is left as it is. What that
    one did not hold is a reason as well, unless it ``drops`` such: it will join.
    """
    own = group_names(model, optimizer)
    if own == wanted or any(name is None for group in [*own, *wanted] for name in group):
        return
    names = [name for group in wanted for name in group if name is not None]
    own = [[name for name in group if name in names] for group in own] if drops else own
    held = {name for group in own for name in group}
    if len(set(names)) < len(names) or not held <= set(names) or len(own) > len(wanted):
        return
    if any(not set(mine) <= set(theirs) for mine, theirs in zip(own, wanted, strict=False)):
        return
    _hold(model, optimizer, wanted)


def put_back_groups(model: nn.Module, optimizer: Optimizer, wanted: Groups) -> None:
    """Let the optimizer hold what it held at an earlier moment of the same run, whatever has joined or left it since.

    What is not the model's has no name: it stays in its place, and only what was added behind it goes.
    """
    own = group_names(model, optimizer)
    if len(own) >= len(wanted) and all(
        mine[: len(theirs)] == theirs for mine, theirs in zip(own, wanted, strict=False)
    ):
        del optimizer.param_groups[len(wanted) :]
        for group, theirs in zip(optimizer.param_groups, wanted, strict=True):
            for key in ("params", "param_names"):
                if key in group:
                    group[key] = group[key][: len(theirs)]
    else:
        _hold(model, optimizer, wanted)


def _hold(model: nn.Module, optimizer: Optimizer, wanted: Groups) -> None:
    """Let the groups hold these parameters of the model, each with the settings that it has."""
    parameters = {bare(name): parameter for name, parameter in model.named_parameters()}
    if any(name not in parameters for group in wanted for name in group):
        return
    del optimizer.param_groups[len(wanted) :]
    held = [[(name, parameters[name]) for name in group if name is not None] for group in wanted]
    for group, theirs in zip(optimizer.param_groups, held, strict=False):
        group["params"] = [parameter for _, parameter in theirs]
        if "param_names" in group:
            group["param_names"] = [name for name, _ in theirs]
    for theirs in held[len(optimizer.param_groups) :]:  # a callback has added it
        is_named = any("param_names" in group for group in optimizer.param_groups)
        optimizer.add_param_group({"params": theirs if is_named else [parameter for _, parameter in theirs]})
