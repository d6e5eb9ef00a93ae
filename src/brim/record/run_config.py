"""``config.yaml`` of a run: the settings, and the optimizer and learning rate that were used."""

from collections.abc import Mapping
from typing import Any

import yaml
from torch.optim import Optimizer

PLAIN = (str, int, float, bool, type(None))  # exactly these: YAML cannot say what a numpy number is


def run_config(config: str | None, settings: Mapping[str, Any], optimizer: Optimizer) -> str:
    """The configuration that the run was started with, or the trainer's settings where there was none."""
    if config is not None:
        return f"{config.rstrip()}\n# used: {optimizer_name(optimizer)}, lr {show_rates(optimizer)}\n"
    plain = {name: value for name, value in settings.items() if type(value) in PLAIN}
    used = used_optimizer(settings.get("optimizer"), optimizer)
    return yaml.safe_dump({"trainer": {**plain, **used}}, sort_keys=False)


def used_optimizer(wanted: Any, optimizer: Optimizer) -> dict[str, Any]:
    """``wanted`` by the settings, as it was used; and the rate, which an optimizer of the user's decides.

    >>> import torch
    >>> own = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.07)
    >>> used_optimizer(own, own)
    {'optimizer': 'SGD', 'lr': 0.07}
    """
    if isinstance(wanted, Mapping) and all(type(value) in PLAIN for value in wanted.values()):
        return {"optimizer": dict(wanted)}
    if wanted is None or isinstance(wanted, str | Mapping):
        return {"optimizer": optimizer_name(optimizer)}
    rates = rates_of(optimizer)
    return {"optimizer": optimizer_name(optimizer), "lr": rates[0] if len(rates) == 1 else rates}


def optimizer_name(optimizer: Optimizer) -> str:
    """Its class: torch's by name, others with their module."""
    kind = type(optimizer)
    return kind.__name__ if kind.__module__.startswith("torch.optim") else f"{kind.__module__}.{kind.__qualname__}"


def rates_of(optimizer: Optimizer) -> list[float]:
    """The learning rates of its groups, each once: those that a schedule starts from, where there is one."""
    rates = [float(group.get("initial_lr", group["lr"])) for group in optimizer.param_groups if "lr" in group]
    return list(dict.fromkeys(rates))


def show_rates(optimizer: Optimizer) -> str:
    """
    >>> import torch
    >>> show_rates(torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1e-3))
    '0.001'
    """
    return ", ".join(f"{rate:g}" for rate in rates_of(optimizer)) or "none"
