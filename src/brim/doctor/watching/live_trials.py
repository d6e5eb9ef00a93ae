"""Settings that are changed for some steps while the script goes on: what fewer threads, or another form of the same
update, would bring. The run is thrown away afterwards."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.optim import SGD, Adagrad, Adam, AdamW, Optimizer

MANY_TENSORS = 8  # below, another form of the update has nothing to gain


@dataclass(frozen=True)
class Setting:
    """Something to change, and how to undo it."""

    name: str
    value: int
    begin: Callable[[], None]
    end: Callable[[], None]


def settings_to_try(optimizer: Optimizer | None, cores: int, device: str) -> list[Setting]:
    """What is worth a trial here."""
    found = []
    if device == "cpu":
        now = torch.get_num_threads()
        counts = {1, cores} if now > cores else {1}
        found += [_threads(count, now) for count in sorted(counts - {now})]
    if optimizer is not None and _count(optimizer) >= MANY_TENSORS:
        found += [_form(optimizer, form) for form in forms_to_try(optimizer)]
    return found


def forms_to_try(optimizer: Optimizer) -> list[str]:
    """Forms of the same update that an optimizer has and does not use.

    On a GPU foreach is what it uses by itself; on a CPU it uses a loop over the tensors.
    """
    group = optimizer.param_groups[0]
    if group.get("fused") or group.get("differentiable") or group.get("maximize") is None:
        return []
    parameters = [p for g in optimizer.param_groups for p in g["params"]]
    is_plain = all(type(p) in (torch.Tensor, torch.nn.Parameter) and p.is_floating_point() for p in parameters)
    return ["fused"] if type(optimizer) in (Adam, AdamW, SGD, Adagrad) and "fused" in group and is_plain else []


def _threads(count: int, now: int) -> Setting:
    return Setting("threads", count, lambda: torch.set_num_threads(count), lambda: torch.set_num_threads(now))


def _form(optimizer: Optimizer, form: str) -> Setting:
    old: list[dict[str, Any]] = [
        {name: group.get(name) for name in ("foreach", "fused")} for group in optimizer.param_groups
    ]

    def begin() -> None:
        for group in optimizer.param_groups:
            group.update({"foreach": False, "fused": False, form: True})

    def end() -> None:
        for group, before in zip(optimizer.param_groups, old, strict=False):
            group.update(before)

    return Setting(form, 1, begin, end)


def _count(optimizer: Optimizer) -> int:
    return sum(len(group["params"]) for group in optimizer.param_groups)
