"""A copy of everything that a step moves, so that steps can be made, looked at, and taken back."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from brim.data.randomness.generators import generator_states, restore_generators
from brim.engine.components.precision import Precision
from brim.engine.components.two_pass import criterion_in
from brim.engine.oom.memory_watch import usable_memory

ROOM = 4  # times the state must be free on the card for its copies to stay there


class StepState:
    """The tensors that a step moves, where they are.

    ``moving``: more of them, by name: what moves though no optimizer moves it and no module has it as a buffer.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        precision: Precision,
        loss_fn: Any = None,
        moving: dict[str, Tensor] | None = None,
    ) -> None:
        self.device = precision.device
        stepped = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        trained: dict[str, Tensor] = {}
        others: dict[str, Tensor] = {}
        self.names: dict[int, str] = {}  # by the id of the tensor
        for name, tensor in _tensors_of(model, loss_fn, optimizer, precision, moving or {}):
            self.names[id(tensor)] = name
            (trained if id(tensor) in stepped else others)[name] = tensor.detach()
        of_optimizer = {f"optimizer {name}": tensor for name, tensor in named_optimizer_tensors(optimizer)}
        self.named = {**trained, **others, **of_optimizer}
        self.trained = list(trained)  # names of what the optimizer steps
        self.others = list(others)  # of what moves in the forward pass, and of the loss scale
        self.of_optimizer = list(of_optimizer)
        self.tensors = list(self.named.values())
        needed = sum(tensor.numel() * tensor.element_size() for tensor in self.tensors)
        self.keeps_on_device = has_room(self.device, needed)

    def copy(self) -> "StateCopy":
        return StateCopy(self, self.copies_of(list(self.named)), generator_states(self.device))

    def copies_of(self, names: list[str]) -> dict[str, Tensor]:
        """Copies of the current values."""
        home = self.device if self.keeps_on_device else torch.device("cpu")
        tensors = [self.named[name] for name in names]
        copies = [torch.empty_like(tensor, device=home) for tensor in tensors]
        copy_all(copies, tensors)
        return dict(zip(names, copies, strict=True))


@dataclass(frozen=True, eq=False)
class StateCopy:
    """The values of one moment."""

    state: StepState
    copies: dict[str, Tensor]
    generators: dict[str, Any]

    def restore(self) -> None:
        """Back to that moment, in the same memory: a graph reads it there."""
        copy_all(self.state.tensors, list(self.copies.values()))
        restore_generators(self.generators, self.state.device)


def has_room(device: torch.device, needed: int) -> bool:
    """Whether copies of so many bytes stay on the device; those of the host's tensors are on the host anyway."""
    if device.type == "cpu":
        return True
    return ROOM * needed < usable_memory(device) - torch.cuda.memory_allocated(device)


def _tensors_of(
    model: nn.Module, loss_fn: Any, optimizer: Optimizer, precision: Precision, moving: dict[str, Tensor]
) -> Iterator[tuple[str, Tensor]]:
    seen: set[int] = set()
    names: set[str] = set()
    scaler = precision.scaler
    scales = {} if scaler is None else {"the loss scale": scaler._scale, "its growth": scaler._growth_tracker}
    named = [*model.named_parameters(), *model.named_buffers()]
    if (criterion := criterion_in(loss_fn)) is not None:
        named += [(f"loss_fn.{name}", one) for name, one in [*criterion.named_parameters(), *criterion.named_buffers()]]
    stepped = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    named += [(f"parameter {number}", parameter) for number, parameter in enumerate(stepped)]  # a loss may have its own
    frozen = {id(one) for _, one in named if isinstance(one, nn.Parameter) and not one.requires_grad}
    for name, tensor in [*scales.items(), *named, *moving.items()]:
        if tensor is None or id(tensor) in seen or (id(tensor) in frozen and name not in moving):
            continue
        seen.add(id(tensor))
        name = name if name not in names else f"{name} ({len(names)})"
        names.add(name)
        yield name, tensor


def named_optimizer_tensors(optimizer: Optimizer) -> Iterator[tuple[str, Tensor]]:
    """The tensors of an optimizer's state, with what they are called there."""
    number = 0
    for state in optimizer.state.values():
        for name, value in state.items():
            if isinstance(value, Tensor):
                yield f"{number} {name}", value
                number += 1


@torch.no_grad()
def copy_all(targets: list[Tensor], sources: list[Tensor]) -> None:
    """Copy many tensors, grouped by type and device: one launch for many small ones."""
    alike: dict[Any, tuple[list[Tensor], list[Tensor]]] = defaultdict(lambda: ([], []))
    for target, source in zip(targets, sources, strict=True):
        into, outof = alike[target.dtype, target.device, source.device]
        into.append(target)
        outof.append(source)
    for into, outof in alike.values():
        torch._foreach_copy_(into, outof)
