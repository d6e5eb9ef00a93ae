"""Buffers that a model gets while it runs: registered or filled by a forward pass, or made longer with each batch.

The script that resumes a run builds the model without them, and weights of an earlier step have fewer of them, or
shorter ones. Everywhere else weights of another shape are those of another architecture.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

Shapes = dict[str, torch.Size]


def buffer_shapes(model: nn.Module) -> Shapes:
    """The shapes of a model's buffers, by name; one that is None is none.

    >>> buffer_shapes(nn.BatchNorm1d(2))["running_mean"]
    torch.Size([2])
    """
    return {name: buffer.shape for name, buffer in model.named_buffers(remove_duplicate=False)}


def empty_buffers(model: nn.Module) -> list[str]:
    """The names of those that are None until a forward pass fills them: a ``state_dict()`` leaves them out."""
    return [
        f"{path}.{name}".lstrip(".")
        for path, module in model.named_modules()
        for name, buffer in module._buffers.items()
        if buffer is None and name not in module._non_persistent_buffers_set
    ]


def formed_buffers(model: nn.Module, at_start: Mapping[str, torch.Size]) -> list[str]:
    """The buffers that have come to be since, or have another shape."""
    return [name for name, shape in buffer_shapes(model).items() if at_start.get(name) != shape]


@dataclass(frozen=True)
class UnformedBuffer:
    """Where a saved buffer belongs that the model does not have, or has in another shape."""

    module: nn.Module
    key: str
    saved: Tensor
    device: torch.device

    def form(self) -> None:
        """Let the model have a buffer of that shape there; what is in it is loaded with the other weights."""
        made = torch.empty_like(self.saved, device=self.device)
        if self.key in self.module._buffers:
            self.module._buffers[self.key] = made
        else:
            self.module.register_buffer(self.key, made)


def places_to_form(
    model: nn.Module, saved: Mapping[str, Any], formed: Collection[str] | None = ()
) -> dict[str, UnformedBuffer]:
    """By name, the saved buffers that take a place or a shape of their own.

    ``formed`` are those that may have any, None stands for all; a buffer that is None or empty takes what there is.
    """
    modules = dict(model.named_modules())
    home = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    found: dict[str, UnformedBuffer] = {}
    for name, tensor in saved.items():
        path, _, key = name.rpartition(".")
        if path not in modules or not isinstance(tensor, Tensor):
            continue
        here = dict(modules[path]._buffers).get(key)
        if _takes(modules[path], key, tensor, formed is None or name in formed):
            found[name] = UnformedBuffer(modules[path], key, tensor, home if here is None else here.device)
    return found


def _takes(module: nn.Module, key: str, saved: Tensor, may_be_any: bool) -> bool:
    if key not in module._buffers:
        return may_be_any and not hasattr(module, key)
    here = module._buffers[key]
    return here is None or (here.shape != saved.shape and (may_be_any or not here.numel()))
