"""What a run changes beside the model: the loss's own modules, and parameters that only the optimizer knows.

A criterion may have buffers that move (a centre, a queue) or a teacher that follows the model; an optimizer of the
user's may hold a learned temperature. A checkpoint without them would go on with their first values.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from brim.engine.components.loss_modules import modules_of
from brim.engine.distributed.model_broadcast import broadcast_model
from brim.engine.distributed.ranks import Ranks
from brim.engine.state.extra_state import check_extra_state
from brim.engine.state.fingerprint import fingerprints, has_fingerprint
from brim.engine.state.host_copy import bytes_of
from brim.errors import ConfigError

SMALL = 1 << 20  # bytes: a tensor that is always saved; a larger one if it is trained, or has moved


@dataclass
class BesideModel:
    """``modules`` are those of the loss, by where it holds them, as far as they are no parts of the model."""

    modules: dict[str, nn.Module] = field(default_factory=dict)
    others: dict[int, nn.Parameter] = field(default_factory=dict)  # by their place in the optimizer
    _trained_in_modules: bool = False  # the optimizer holds parameters of the loss's modules
    _inside: set[int] = field(default_factory=set)  # tensors of the model
    _at_start: dict[str, str] = field(default_factory=dict)  # fingerprints of large tensors
    _moved: set[str] = field(default_factory=set)  # large tensors that differed at some save: for good

    @classmethod
    def of(cls, models: Sequence[nn.Module], loss_fn: Any, optimizer: Optimizer) -> "BesideModel":
        """What is beside the model at the beginning of a run; ``models``: that, and the copy that is trained."""
        inside = {id(tensor) for model in models for tensor in [*model.parameters(), *model.buffers()]}
        modules = {} if loss_fn is None else modules_of(loss_fn, *models)
        in_modules = {id(parameter) for module in modules.values() for parameter in module.parameters()}
        held = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        others = {place: p for place, p in enumerate(held) if id(p) not in inside and id(p) not in in_modules}
        found = cls(modules, others, any(id(p) in in_modules - inside for p in held), inside)
        found._at_start = fingerprints(found._large())
        return found

    @property
    def is_trained(self) -> bool:
        """Whether the optimizer holds something that is not the model's."""
        return bool(self.others or self._trained_in_modules)

    def check(self) -> None:
        """Refuse what could not be saved, before training and not after it."""
        for name, module in self.modules.items():
            check_extra_state(module, f"{name}: ")

    def state(self) -> dict[str, Any]:
        """What a checkpoint needs of it: what is trained, what is small, and what has moved."""
        self._look()
        return {
            "modules": {name: self._module_state(name, module) for name, module in self.modules.items()},
            "parameters": {place: parameter.detach() for place, parameter in self.others.items()},
        }

    def restore(self, saved: dict[str, Any], device: torch.device) -> list[str]:
        """Take up what a checkpoint holds; what has no place here is returned by name."""
        lost = [name for name, state in saved["modules"].items() if state and name not in self.modules]
        for name, module in self.modules.items():
            _load(module, saved["modules"].get(name, {}), device)
        with torch.no_grad():
            for place, parameter in self.others.items():
                if place in saved["parameters"]:
                    parameter.copy_(saved["parameters"][place])
        return lost

    def broadcast_model(self, ranks: Ranks) -> None:
        """Every rank begins with the first one's."""
        if ranks.is_alone:
            return
        found = [(name, tuple(tensor.shape)) for name, tensor in self._tensors()]
        if any(other != found for other in ranks.all_gather_object(found)):
            return  # a loss that differs between ranks is the user's wish
        for module in [*self.modules.values(), nn.ParameterList(self.others.values())]:
            broadcast_model(module, ranks)

    def share_buffers(self, ranks: Ranks) -> None:
        """Before a checkpoint: everybody takes the first rank's buffers, for a resumed run will."""
        if not ranks.is_alone:
            self._look()
        if ranks.is_alone or not any(ranks.all_gather_object(any(True for _ in self._buffers()))):
            return
        told: dict[str, Tensor] = ranks.broadcast_object({name: buffer.cpu() for name, buffer in self._buffers()})
        with torch.no_grad():
            for name, buffer in self._buffers():
                if name in told and told[name].shape == buffer.shape:
                    buffer.copy_(told[name])

    def _tensors(self) -> Iterator[tuple[str, Tensor]]:
        for name, module in self.modules.items():
            for key, value in module.state_dict(keep_vars=True).items():
                if isinstance(value, Tensor) and id(value) not in self._inside:
                    yield f"{name}/{key}", value
        yield from ((str(place), parameter) for place, parameter in self.others.items())

    def _buffers(self) -> Iterator[tuple[str, Tensor]]:
        for name, tensor in self._tensors():
            if not isinstance(tensor, nn.Parameter) and self._may_have_moved(name, tensor):
                yield name, tensor

    def _module_state(self, name: str, module: nn.Module) -> dict[str, Any]:
        state = module.state_dict(keep_vars=True)
        kept: dict[str, Any] = {}
        for key, value in state.items():
            if not isinstance(value, Tensor):
                kept[key] = value
            elif id(value) not in self._inside and self._may_have_moved(f"{name}/{key}", value):
                kept[key] = value.detach()
        return kept

    def _may_have_moved(self, name: str, tensor: Tensor) -> bool:
        return tensor.requires_grad or name not in self._at_start or name in self._moved

    def _large(self) -> dict[str, Tensor]:
        """What need not be saved while it does not move."""
        return {
            name: tensor
            for name, tensor in self._tensors()
            if bytes_of(tensor) > SMALL and not tensor.requires_grad and has_fingerprint(tensor)
        }

    def _look(self) -> None:
        """Note which large tensors are not as they were at the start."""
        unmoved = {name: tensor for name, tensor in self._large().items() if name not in self._moved}
        self._moved |= {name for name, now in fingerprints(unmoved).items() if self._at_start.get(name) != now}


def look_beside(
    model: nn.Module, copies: Sequence[nn.Module], loss_fn: Any, optimizer: Optimizer, ranks: Ranks
) -> BesideModel:
    """What changes beside the model, the same on all ranks; what could not be saved is refused.

    ``copies``: the sharded module that is trained in the place of the model.
    """
    beside = BesideModel.of([model, *copies], loss_fn, optimizer)
    if copies and beside.is_trained:
        raise ConfigError(
            "strategy='fsdp' exchanges gradients of the model alone, and optimizer= holds a parameter that is not "
            "the model's; make it a part of the model, or use strategy='ddp'"
        )
    check_extra_state(model)
    beside.check()
    beside.broadcast_model(ranks)
    return beside


def _load(module: nn.Module, saved: dict[str, Any], device: torch.device) -> None:
    """Load a part of a state_dict; a buffer that was None at the start and a tensor later is put in its place."""
    _, unexpected = module.load_state_dict(saved, strict=False)
    for key in unexpected:
        owner_name, _, name = key.rpartition(".")
        try:
            owner = module.get_submodule(owner_name)
        except AttributeError:
            continue
        if name in owner._buffers and owner._buffers[name] is None:
            owner._buffers[name] = saved[key].to(device, copy=True)
