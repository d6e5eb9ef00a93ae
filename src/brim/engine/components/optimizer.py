"""The optimizer of a run, from a name, a function or an instance."""

import inspect
import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from brim.arguments.nearest import nearest
from brim.engine.components.parameter_groups import RULES, GroupRules
from brim.engine.mistakes.one_argument import call_with, check_takes_one
from brim.engine.state.sharded_tensors import is_sharded
from brim.errors import ConfigError, a_type, first_line, said

# How optimizers that are not torch's insist on a closure that their signature leaves out (SAM, say).
DEMANDS_CLOSURE = re.compile(r"assert\s+closure\b|if\s+(?:not\s+closure|closure\s+is\s+None)\s*:\s*raise\b")
FUSED_IN_SHARDS = (torch.optim.Adam, torch.optim.AdamW)  # of the fused ones, those with sharded tensors in torch 2.13
DEFAULT_LR = 1e-3
OptimizerLike = str | Mapping[str, Any] | Callable[[Iterable[nn.Parameter]], Optimizer] | Optimizer


def make_optimizer(wanted: OptimizerLike | None, model: nn.Module, lr: float) -> Optimizer:
    """The optimizer of a run: AdamW unless said otherwise; names are those in ``torch.optim``, in any case.

    A mapping has a name and the optimizer's own arguments: ``{"name": "AdamW", "weight_decay": 0.1}``. An optimizer
    that brim builds is the fused one, where torch has it: the same mathematics in one pass over the weights. It may
    have rules for groups of parameters, see :class:`GroupRules`.
    """
    if isinstance(wanted, Optimizer):
        if not holds_parameters(wanted, model):
            raise ConfigError(
                f"optimizer= holds none of the parameters of {type(model).__name__}, so nothing would train"
            )
        refuse_closures(wanted)
        _check_state(wanted)
        return wanted
    sparse = any(getattr(module, "sparse", False) is True for module in model.modules())
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not parameters:
        lists = (
            "" if list(model.parameters()) else "; layers in a list or dict are its own as nn.ModuleList or ModuleDict"
        )
        raise ConfigError(
            f"{type(model).__name__} has no parameter with requires_grad, so there is nothing to train{lists}"
        )
    if wanted is None or isinstance(wanted, str):
        return _build("AdamW" if wanted is None else wanted, parameters, lr, {}, sparse)
    if isinstance(wanted, Mapping):
        arguments = {key: value for key, value in wanted.items() if key not in ("name", *RULES)}
        rules = GroupRules.of(wanted)
        groups = None if rules is None else rules.groups(model, lr)
        made = _build(str(wanted.get("name", "AdamW")), parameters, lr, arguments, sparse, groups)
        if rules is not None and rules.no_decay:
            check_decay(made)
        return made
    if not callable(wanted):
        raise ConfigError(
            f"optimizer= is {a_type(wanted)}; give one optimizer, its name, a mapping with a name, or a "
            "function of the parameters (two networks with an optimizer each are two brim.Steps)"
        )
    if isinstance(wanted, type) and issubclass(wanted, Optimizer) and _takes_rate(wanted):
        made = wanted(parameters, lr=lr)  # type: ignore[call-arg]
    else:
        example = "lambda parameters: torch.optim.SGD(parameters, lr=0.1)"
        check_takes_one(wanted, "optimizer", example)
        made = call_with(wanted, parameters, "optimizer", "the list of parameters that train", example)
    if not isinstance(made, Optimizer):
        raise ConfigError(f"optimizer= returned {a_type(made)}; it must return a torch optimizer")
    refuse_closures(made)
    _check_state(made)
    return made


def _check_state(optimizer: Optimizer) -> None:
    """Refuse at the start what would end the run at its first checkpoint."""
    try:
        optimizer.state_dict()
    except Exception as error:  # of a class of the user's
        raise ConfigError(
            f"{type(optimizer).__name__}.state_dict() fails ({said(error)}), so no checkpoint could hold it; let its "
            "__init__ call super().__init__, or write state_dict and load_state_dict"
        ) from error


def holds_parameters(optimizer: Optimizer, model: nn.Module) -> bool:
    """Whether it trains the model at all; one of another model's parameters, of a copy perhaps, does not.

    >>> model = nn.Linear(1, 1)
    >>> holds_parameters(torch.optim.SGD(model.parameters(), lr=0.1), model)
    True
    """
    held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    return any(id(parameter) in held for parameter in model.parameters())


def optimizer_maker(wanted: Any, lr: float) -> Callable[[Any], Optimizer]:
    """The optimizer that would train, for other parameters: those of the copies that a forecast makes of a model."""

    def make(parameters: Any) -> Optimizer:
        if isinstance(wanted, Optimizer):
            return optimizer_like(wanted, parameters)
        holder = nn.Module()
        for place, parameter in enumerate(parameters):
            holder.register_parameter(f"p{place}", parameter)
        return make_optimizer(wanted, holder, lr)

    return make


def optimizer_like(optimizer: Optimizer, parameters: Any) -> Optimizer:
    """An optimizer with the same settings for other parameters."""
    settings = {name: value for name, value in optimizer.param_groups[0].items() if name in optimizer.defaults}
    known = inspect.signature(type(optimizer).__init__).parameters
    takes_all = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in known.values())
    return type(optimizer)(list(parameters), **{k: v for k, v in settings.items() if takes_all or k in known})


def _takes_rate(kind: type[Optimizer]) -> bool:
    known = inspect.signature(kind).parameters
    return "lr" in known or any(one.kind is inspect.Parameter.VAR_KEYWORD for one in known.values())


def unused_rate(wanted: OptimizerLike | None, made: Optimizer, lr: float) -> str | None:
    """A sentence where ``lr=`` was given, and the user's own optimizer has another one, which is what counts."""
    rates = [float(group["lr"]) for group in made.param_groups if "lr" in group]
    is_own = isinstance(wanted, Optimizer) or (callable(wanted) and not isinstance(wanted, type))
    if not is_own or lr == DEFAULT_LR or not rates or any(math.isclose(rate, lr) for rate in rates):
        return None
    return f"lr={lr:g} has no effect: optimizer= made its own choice, {', '.join(f'{rate:g}' for rate in rates[:3])}"


def refuse_closures(optimizer: Optimizer) -> None:
    """Refuse an optimizer whose step computes the loss itself, several times: brim's step does so once, and before.

    >>> refuse_closures(torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1))
    """
    step = type(optimizer).step
    closure = inspect.signature(step).parameters.get("closure")
    is_needed = closure is not None and closure.default is inspect.Parameter.empty
    if closure is not None and not is_needed and not type(optimizer).__module__.startswith("torch."):
        try:
            is_needed = DEMANDS_CLOSURE.search(inspect.getsource(step)) is not None
        except (OSError, TypeError):  # no source to be read
            is_needed = False
    if is_needed:
        raise ConfigError(
            f"{type(optimizer).__name__}.step needs a closure, by which it evaluates the loss several times a step, "
            "and brim's step evaluates it once; use an optimizer that steps without one"
        )


def check_decay(optimizer: Optimizer) -> None:
    """Refuse ``no_decay`` where nothing decays anyway."""
    if not any(group.get("weight_decay") for group in optimizer.param_groups):
        raise ConfigError(
            f"optimizer: no_decay spares parameters a weight decay, and {type(optimizer).__name__} has none here; set "
            "weight_decay as well, or leave no_decay out"
        )


def _build(
    name: str,
    parameters: list[nn.Parameter],
    lr: float,
    arguments: dict[str, Any],
    sparse: bool,
    groups: list[dict[str, Any]] | None = None,
) -> Optimizer:
    maker = _optimizer_class(name)
    known = inspect.signature(maker).parameters
    odd = next((key for key in arguments if key not in known or key in ("params", "lr")), None)
    if odd is not None:
        near = None if odd == "lr" else nearest(odd, [*known, *RULES], 0.7)
        hint = "lr has its own setting" if near is None else f"did you mean {near!r}?"
        raise ConfigError(f"optimizer: {odd!r} is not an argument of {name} that can be set here; {hint}")
    # The fused ones take no sparse gradients.
    if (
        "fused" in known
        and "foreach" not in arguments
        and not sparse
        and {p.device.type for p in parameters} <= {"cpu", "cuda"}
    ):
        knows_shards = maker in FUSED_IN_SHARDS or not any(map(is_sharded, parameters))
        arguments = {"fused": knows_shards and all(map(_may_be_fused, parameters)), **arguments}
    try:
        made = maker(parameters if groups is None else groups, lr=lr, **arguments)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ConfigError(f"optimizer {name} cannot be made: {first_line(error)}") from error
    refuse_closures(made)
    return made


def _may_be_fused(parameter: nn.Parameter) -> bool:
    """Real numbers; on the CPU no short ones: torch 2.13's fused SGD leaves 16 and more of them where they are."""
    return parameter.is_floating_point() and (parameter.device.type != "cpu" or parameter.element_size() >= 4)


def _optimizer_class(name: str) -> Callable[..., Optimizer]:
    known = {
        key.lower(): value
        for key, value in vars(torch.optim).items()
        if isinstance(value, type) and issubclass(value, Optimizer) and value is not Optimizer
    }
    if name.lower() not in known:
        word = next((word for word in re.split("[^a-z]+", name.lower()) if word in known), None)  # adamw_torch
        near = known[word].__name__ if word else nearest(name, [value.__name__ for value in known.values()])
        hint = "" if near is None else f"did you mean {near!r}? "
        raise ConfigError(
            f"optimizer={name!r} is not in torch.optim; {hint}one of another library is handed over as a function: "
            "optimizer=lambda parameters: ..."
        )
    return known[name.lower()]
