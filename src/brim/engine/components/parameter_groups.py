"""Groups of parameters by rule: what has no weight decay, and what has a learning rate of its own."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn
from torch.optim import Optimizer

from brim.engine.components.name_patterns import matches
from brim.engine.state.weight_names import plain_name
from brim.errors import ConfigError

RULES = ("no_decay", "lr_of", "layer_decay")
LATE = "frozen_at_start"  # the key of a group that names parameters which belong to it once they are thawed


@dataclass(frozen=True)
class GroupRules:
    """Patterns are words of names and of kinds of modules, or dotted paths; with ``*`` they match a name whole.

    Args:
        no_decay: patterns of parameters whose weight decay is 0.
        lr_of: learning rates by pattern.
        layer_decay: the rate of each block is that of the one after it times this; what comes before the blocks has
            one factor more, and what comes after them the whole rate.
    """

    no_decay: tuple[str, ...] = ()
    lr_of: dict[str, float] = field(default_factory=dict)
    layer_decay: float | None = None

    @classmethod
    def of(cls, wanted: Mapping[str, Any]) -> "GroupRules | None":
        """The rules in a mapping such as ``optimizer=`` takes; None where there are none."""
        if not any(name in wanted for name in RULES):
            return None
        no_decay, lr_of, layer_decay = (wanted.get(name) for name in RULES)
        no_decay = [no_decay] if isinstance(no_decay, str) else no_decay or []
        if not isinstance(no_decay, list | tuple) or not all(isinstance(one, str) and one for one in no_decay):
            raise ConfigError(f"optimizer: no_decay={no_decay!r} must be a list of patterns, such as ['bias', 'norm']")
        if lr_of is not None and not isinstance(lr_of, Mapping):
            raise ConfigError(
                f"optimizer: lr_of={lr_of!r} must map patterns to learning rates, such as {{'head': 0.001}}"
            )
        rates = {str(pattern): _positive(f"lr_of[{pattern!r}]", rate) for pattern, rate in (lr_of or {}).items()}
        if layer_decay is not None and _positive("layer_decay", layer_decay) > 1:
            raise ConfigError(f"optimizer: layer_decay={layer_decay} must be at most 1")
        return cls(tuple(no_decay), rates, None if layer_decay is None else float(layer_decay))

    def groups(self, model: nn.Module, lr: float) -> list[dict[str, Any]]:
        """The parameters of the model by what they have in common, as an optimizer of torch's takes them.

        Those that are frozen are named in the group that they join when they are thawed.
        """
        kinds = _kinds(model)
        self._check(kinds, model)
        layers = {} if self.layer_decay is None else layer_factors(model, self.layer_decay)
        groups: dict[tuple[float, bool], dict[str, Any]] = {}
        for name, parameter in model.named_parameters():
            name = plain_name(name)
            rate = self._rate_of(name, kinds[name], lr * layers.get(name, 1.0))
            is_spared = any(matches(pattern, name, kinds[name]) for pattern in self.no_decay)
            group = groups.setdefault((rate, is_spared), {"params": [], "lr": rate, LATE: []})
            if is_spared:
                group["weight_decay"] = 0.0
            if parameter.requires_grad:
                group["params"].append(parameter)
            else:
                group[LATE].append(name)
        return list(groups.values())

    def _rate_of(self, name: str, kind: str, otherwise: float) -> float:
        found = [pattern for pattern in self.lr_of if matches(pattern, name, kind)]
        if len({self.lr_of[pattern] for pattern in found}) > 1:
            raise ConfigError(
                f"optimizer: lr_of gives {name} several rates, by {found[0]!r} and {found[1]!r}; leave one out"
            )
        return self.lr_of[found[0]] if found else otherwise

    def _check(self, kinds: dict[str, str], model: nn.Module) -> None:
        for rule, patterns in (("no_decay", self.no_decay), ("lr_of", self.lr_of)):
            for pattern in patterns:
                if not any(matches(pattern, name, kind) for name, kind in kinds.items()):
                    for other, name in _tied(model).items():
                        if matches(pattern, other, kinds[name]):
                            raise ConfigError(
                                f"optimizer: {rule} has {pattern!r}, and {other} is tied to {name}: they are one "
                                f"parameter, which the model names {name!r}; use that name for both"
                            )
                    some = ", ".join(list(kinds)[:3])
                    raise ConfigError(
                        f"optimizer: {rule} has {pattern!r}, which matches no parameter and no kind of module: it is "
                        f"looked for as a whole word, and as a part of one it is '*{pattern.strip('*')}*'; the "
                        f"parameters are {some}, ..."
                    )


def _tied(model: nn.Module) -> dict[str, str]:
    """Further names of parameters that a model has in several places, with the name that counts."""
    first = {id(parameter): plain_name(name) for name, parameter in model.named_parameters()}
    every = ((plain_name(name), first[id(one)]) for name, one in model.named_parameters(remove_duplicate=False))
    return {name: counted for name, counted in every if name != counted}


def layer_factors(model: nn.Module, decay: float) -> dict[str, float]:
    """What each parameter's rate is multiplied by, from the first block of the model to what follows the last."""
    stacks = {plain_name(name): module for name, module in model.named_modules() if _is_stack(module)}
    outermost = [name for name in stacks if not any(name.startswith(f"{other}.") for other in stacks if other != name)]
    if len(outermost) != 1:
        found = f"has {len(outermost)} ({', '.join(outermost[:3])})" if outermost else "has none"
        raise ConfigError(
            f"optimizer: layer_decay needs one list of equal blocks, and {type(model).__name__} {found}; give "
            "the rates with lr_of"
        )
    (stack,) = outermost
    places = {name: place for place, (name, _) in enumerate(stacks[stack].named_children())}
    factors, has_begun = {}, False
    for full, _ in model.named_parameters():
        name = plain_name(full)
        if name.startswith(f"{stack}."):
            has_begun = True
            depth = len(places) - places[name.removeprefix(f"{stack}.").partition(".")[0]]
        else:
            depth = 0 if has_begun else len(places) + 1
        factors[name] = decay**depth
    return factors


def _is_stack(module: nn.Module) -> bool:
    items = list(module.children()) if isinstance(module, nn.ModuleList | nn.Sequential) else []
    return (
        len(items) > 1
        and len({type(item) for item in items}) == 1
        and all(any(True for _ in i.children()) for i in items)
    )


def _kinds(model: nn.Module) -> dict[str, str]:
    """The kind of module that each parameter belongs to; FSDP puts its own name before it."""
    kinds = {plain_name(path): type(module).__name__.removeprefix("FSDP") for path, module in model.named_modules()}
    names = [plain_name(name) for name, _ in model.named_parameters()]
    return {name: kinds[name.rpartition(".")[0]] for name in names}


def describe_groups(optimizer: Optimizer, model: nn.Module) -> Iterable[str]:
    """A line for each group: its settings, and what is in it by name."""
    names = {id(parameter): plain_name(name) for name, parameter in model.named_parameters()}
    for number, group in enumerate(optimizer.param_groups, 1):
        held = [names.get(id(parameter), "?") for parameter in group["params"]]
        late = [f"{name} (frozen)" for name in group.get(LATE, ())]
        decay = f", weight decay {group['weight_decay']:g}" if "weight_decay" in group else ""
        yield f"optimizer group {number}: lr {float(group['lr']):g}{decay}: {', '.join([*held, *late])}"


def _positive(name: str, value: Any) -> float:
    try:
        number = float(value)  # YAML takes 1e-3 for a text
    except (TypeError, ValueError):
        number = 0.0
    if isinstance(value, bool) or not 0 < number < float("inf"):
        raise ConfigError(f"optimizer: {name}={value!r} must be a number above 0")
    return number
