"""Settings that are changed for some steps while the script goes on: what fewer threads, or another form of the same
update, would bring. The run is thrown away afterwards."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.optim import Optimizer

from brim.doctor.cures.anomaly_detection import switch_off_anomaly_detection
from brim.doctor.cures.first_step import can_be_fused

MANY_TENSORS = 8  # below, another form of the update has nothing to gain


@dataclass(frozen=True)
class TriedSetting:
    """Something to change, and how to undo it."""

    name: str
    value: int
    begin: Callable[[], None]
    end: Callable[[], None]


def settings_to_try(
    optimizers: list[Optimizer], cores: int, device: str, zeroes: bool = False, finds_anomalies: bool = False
) -> list[TriedSetting]:
    """What is worth a trial here: gradients that are dropped where they are filled with zeros, too."""
    found = []
    if device == "cpu":
        now = torch.get_num_threads()
        counts = {1, cores} if now > cores else {1}
        found += [_threads(count, now) for count in sorted(counts - {now})]
    fusible = [optimizer for optimizer in optimizers if _count(optimizer) >= MANY_TENSORS and can_be_fused(optimizer)]
    found += [_fused(fusible)] if fusible else []
    found += [_without_zeros()] if zeroes else []
    return [*found, *([_without_anomaly_detection()] if finds_anomalies else [])]


def _threads(count: int, now: int) -> TriedSetting:
    return TriedSetting("threads", count, lambda: torch.set_num_threads(count), lambda: torch.set_num_threads(now))


def _fused(optimizers: list[Optimizer]) -> TriedSetting:
    groups: list[dict[str, Any]] = [group for optimizer in optimizers for group in optimizer.param_groups]
    old: list[dict[str, Any]] = [{name: group.get(name) for name in ("foreach", "fused")} for group in groups]

    def begin() -> None:
        for optimizer in optimizers:
            _move_counts(optimizer, to_device=True)
        for group in groups:
            group.update({"foreach": False, "fused": True})

    def end() -> None:
        for optimizer in optimizers:
            _move_counts(optimizer, to_device=False)
        for group, before in zip(groups, old, strict=True):
            group.update(before)

    return TriedSetting("fused", 1, begin, end)


def _without_zeros() -> TriedSetting:
    """``zero_grad(set_to_none=False)`` as the default: what backward passes take to add is saved, too."""
    zero_grad = Optimizer.zero_grad

    def begin() -> None:
        Optimizer.zero_grad = lambda self, set_to_none=True: zero_grad(self)  # type: ignore[method-assign]

    def end() -> None:
        Optimizer.zero_grad = zero_grad  # type: ignore[method-assign]

    return TriedSetting("drop-gradients", 1, begin, end)


def _without_anomaly_detection() -> TriedSetting:
    undo: list[Callable[[], None]] = []
    return TriedSetting(
        "no-anomaly-detection", 1, lambda: undo.append(switch_off_anomaly_detection()), lambda: undo.pop()()
    )


def _move_counts(optimizer: Optimizer, to_device: bool) -> None:
    """Fused updates want the number of steps beside the parameters, others on the host."""
    for parameter, state in optimizer.state.items():
        if isinstance(state.get("step"), torch.Tensor):
            state["step"] = state["step"].to(parameter.device if to_device else "cpu")


def _count(optimizer: Optimizer) -> int:
    return sum(len(group["params"]) for group in optimizer.param_groups)
