"""A copy of everything that a step moves, so that steps can be made, looked at, and taken back."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from brim.engine.generators import generator_states, restore_generators
from brim.engine.memory_watch import usable_memory
from brim.engine.out_of_memory import optimizer_tensors
from brim.engine.precision import Precision

ROOM = 4  # times the state must be free on the card for its copies to stay there


class StepState:
    """The tensors that a step moves, where they are."""

    def __init__(self, model: nn.Module, optimizer: Optimizer, precision: Precision) -> None:
        self.device = precision.device
        self.named = dict(_tensors_of(model, optimizer, precision))
        self.tensors = list(self.named.values())
        needed = sum(tensor.numel() * tensor.element_size() for tensor in self.tensors)
        free = usable_memory(self.device) - torch.cuda.memory_allocated(self.device)
        self.keeps_on_device = ROOM * needed < free

    def copy(self) -> "StateCopy":
        home = self.device if self.keeps_on_device else torch.device("cpu")
        copies = [torch.empty_like(tensor, device=home) for tensor in self.tensors]
        _copy_all(copies, self.tensors)
        return StateCopy(self, copies, generator_states(self.device))


class StateCopy:
    """The values of one moment."""

    def __init__(self, state: StepState, copies: list[Tensor], generators: dict[str, Any]) -> None:
        self.state = state
        self.copies = copies
        self.generators = generators

    def restore(self) -> None:
        """Back to that moment, in the same memory: a graph reads it there."""
        _copy_all(self.state.tensors, self.copies)
        restore_generators(self.generators, self.state.device)


def _tensors_of(model: nn.Module, optimizer: Optimizer, precision: Precision) -> Iterator[tuple[str, Tensor]]:
    seen: set[int] = set()
    scaler = precision.scaler
    scales = {} if scaler is None else {"the loss scale": scaler._scale, "its growth": scaler._growth_tracker}
    named = [*model.named_parameters(), *model.named_buffers(), *scales.items()]
    stepped = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    named += [(f"parameter {number}", parameter) for number, parameter in enumerate(stepped)]  # a loss may have its own
    named += [(f"optimizer {number}", tensor) for number, tensor in enumerate(optimizer_tensors(optimizer))]
    for name, tensor in named:
        is_frozen = isinstance(tensor, nn.Parameter) and not tensor.requires_grad
        if tensor is not None and id(tensor) not in seen and not is_frozen:
            seen.add(id(tensor))
            yield name, tensor.detach()


@torch.no_grad()
def _copy_all(targets: list[Tensor], sources: list[Tensor]) -> None:
    """Many at once, by type and place: one launch for many small tensors."""
    alike: dict[Any, tuple[list[Tensor], list[Tensor]]] = defaultdict(lambda: ([], []))
    for target, source in zip(targets, sources, strict=True):
        into, outof = alike[target.dtype, target.device, source.device]
        into.append(target)
        outof.append(source)
    for into, outof in alike.values():
        torch._foreach_copy_(into, outof)
