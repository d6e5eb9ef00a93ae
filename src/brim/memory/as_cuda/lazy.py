"""Lazy modules, whose parameters get their shape in the first forward pass."""

from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter
from torch.utils._python_dispatch import _disable_current_modes

from brim.replaced import replaced

MARK = "made_for_a_forecast"


def is_of_a_forecast(tensor: Tensor) -> bool:
    """Whether a tensor is fake, or without a shape and bound to become so: all others are the user's own."""
    return isinstance(tensor, FakeTensor) or MARK in tensor.__dict__


def lazy_parameters_become_fake() -> AbstractContextManager[None]:
    """A parameter without a shape is real, for torch cannot make it fake, and is exchanged for a fake one later."""
    materialize: Any = UninitializedParameter.materialize  # type: ignore[attr-defined]

    def become(self: Any, shape: Any, device: Any = None, dtype: Any = None) -> None:
        made = torch.empty(shape, dtype=dtype or self.dtype)
        if not isinstance(made, FakeTensor):  # another thread, which has nothing to do with the forecast
            materialize(self, shape, device, dtype)
        elif isinstance(self, UninitializedParameter):
            _exchange(self, nn.Parameter(made, self.requires_grad))
        else:
            _exchange(self, made)

    kinds = (UninitializedParameter, UninitializedBuffer)
    return replaced(
        *((kind, "materialize", become) for kind in kinds),
        *((kind, "__new__", _without_modes(kind.__new__)) for kind in kinds),
    )


def _exchange(old: Any, new: Any) -> None:
    """``torch.utils.swap_tensors`` without its check that nothing knows the new tensor: torch's own caches do."""
    old.__class__, new.__class__ = new.__class__, old.__class__
    old.__dict__, new.__dict__ = new.__dict__, old.__dict__
    torch._C._swap_tensor_impl(old, new)  # type: ignore[attr-defined]


def _without_modes(new: Any) -> Any:
    def make(cls: Any, *args: Any, **kwargs: Any) -> Any:
        with _disable_current_modes():
            made = new(cls, *args, **kwargs)
        made.__dict__[MARK] = True
        return made

    return staticmethod(make)
