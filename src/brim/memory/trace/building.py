"""The model of a forecast: built of fake tensors, or copied from one that exists."""

from collections.abc import Callable

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from brim.errors import ModelError, a_type
from brim.memory.as_cuda.lazy import is_of_a_forecast
from brim.memory.trace.fake_copy import FakeCopy
from brim.memory.trace.trace import Recorder
from brim.user_line import users_errors


def build(made: Callable[[], nn.Module] | nn.Module, recorder: Recorder) -> nn.Module:
    """A model of fake tensors; one that exists already is copied, and left alone."""
    if isinstance(made, nn.Module):
        _check(made, recorder)
        copier = FakeCopy()
        copied: nn.Module = copier.of(made)
        for fake, value in copier.values:
            recorder.know(fake, value)
        return copied
    with users_errors("building the model"):
        model = made()
    if not isinstance(model, nn.Module):
        raise ModelError(f"model= built {a_type(model)}; it must build a torch.nn.Module")
    if not all(is_of_a_forecast(tensor) for tensor in (*model.parameters(), *model.buffers())):
        return build(model, recorder)  # it was there before: the forecast works on a copy
    _check(model, recorder)
    return model


def _check(model: nn.Module, recorder: Recorder) -> None:
    """What cannot be run on fake tensors is refused in a sentence of its own."""
    if any(type(m).__name__ == "OptimizedModule" or m._compiled_call_impl is not None for m in model.modules()):
        recorder.note("torch.compile was left out: the forecast is that of the model without it")
    if any(isinstance(module, torch.jit.ScriptModule) for module in model.modules()):
        raise ModelError("the model was made by torch.jit, which cannot be watched; give the module it was made from")
    buffers = [(name, tensor) for name, tensor in model.named_buffers() if recorder.sparse_parts(tensor) is None]
    for name, tensor in (*model.named_parameters(), *buffers):
        if not is_lazy(tensor) and tensor.layout != torch.strided:
            raise ModelError(
                f"{name} is a sparse tensor, whose memory cannot be forecast; give a dense one in its place"
            )
