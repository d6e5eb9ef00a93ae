"""A model that exists, as a model of fake tensors, without copying a weight."""

import weakref
from typing import Any

import torch
from torch import Tensor, nn

SMALL = 1 << 20  # elements of a buffer of whole numbers whose values are worth keeping


class FakeCopy:
    """Copies a module tree: modules and containers anew, tensors fake, everything else shared.

    The copy can be trained on fake tensors without leaving a trace in the original, which may be on any device.
    """

    def __init__(self) -> None:
        self._made: dict[int, Any] = {}
        self.values: list[tuple[Tensor, Tensor]] = []  # fake tensors of whole numbers, and what they hold

    def of(self, value: Any) -> Any:
        if id(value) in self._made:
            return self._made[id(value)]
        if isinstance(value, Tensor):
            return self._remember(value, self._tensor(value))
        if isinstance(value, nn.Module):
            return self._module(value)
        if type(value) in (list, tuple, set):
            return type(value)(self.of(item) for item in value)
        if isinstance(value, weakref.ref) and isinstance(value(), Tensor):
            return weakref.ref(self.of(value()))
        if isinstance(value, dict) and type(value).__module__ in ("builtins", "collections"):
            copied = self._remember(value, type(value)() if type(value) is not dict else {})
            copied.update({key: self.of(item) for key, item in value.items()})
            return copied
        return value

    def _module(self, module: nn.Module) -> nn.Module:
        copied: nn.Module = self._remember(module, module.__class__.__new__(module.__class__))
        for name, value in vars(module).items():
            copied.__dict__[name] = self.of(value)
        return copied

    def _tensor(self, tensor: Tensor) -> Tensor:
        fake = torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype)
        if not tensor.is_floating_point() and not tensor.is_complex() and tensor.numel() <= SMALL:
            self.values.append((fake, tensor))
        if isinstance(tensor, nn.Parameter):
            return nn.Parameter(fake, requires_grad=tensor.requires_grad)
        return fake.requires_grad_(tensor.requires_grad)

    def _remember(self, value: Any, copied: Any) -> Any:
        self._made[id(value)] = copied
        return copied
