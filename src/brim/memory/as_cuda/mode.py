"""Fake CPU tensors that take the ways CUDA tensors would take through torch, on a machine without a GPU.

A forecast needs to know which kernels run and what they keep. Fake CUDA tensors would say it, but they need a CUDA
build and a driver for the backward pass; fake CPU tensors train anywhere, and take other ways in a handful of places:
those are overridden here, at the dispatcher, for as long as the context lasts.
"""

import logging
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.library import Library
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _disable_current_modes

from brim.hardware.cards import Card
from brim.ignored_warnings import ignored_warnings
from brim.memory.as_cuda.attention import register_attention
from brim.memory.as_cuda.autocast import CastWeights, autocast_cuda_is_autocast_cpu, register_autocast
from brim.memory.as_cuda.call_recorder import CallRecorder
from brim.memory.as_cuda.cells import register_cells
from brim.memory.as_cuda.devices import GpuMeansHere, models_see_the_gpu
from brim.memory.as_cuda.fake_kernels import fake_kernels_as_on_cuda
from brim.memory.as_cuda.flex import flex_attention_as_on_cuda
from brim.memory.as_cuda.lazy import lazy_parameters_become_fake
from brim.memory.as_cuda.lengths import LengthsAreNumbers
from brim.memory.as_cuda.model_code.arrays import fake_tensors_give_arrays
from brim.memory.as_cuda.model_code.caches import caches_forget_tensors
from brim.memory.as_cuda.model_code.card_questions import models_ask_about
from brim.memory.as_cuda.model_code.streams import streams_are_idle
from brim.memory.as_cuda.operators import register_operators
from brim.memory.as_cuda.optimizers import optimizers_as_on_cuda
from brim.memory.as_cuda.recurrent import register_recurrent
from brim.replaced import replaced

# The dispatcher is one for the whole process.
_ONE_AT_A_TIME = threading.RLock()


class _OneMode(FakeTensorMode):
    """deepcopy of a module copies its fake tensors and their mode with them: two modes meet, and torch refuses."""

    def __deepcopy__(self, memo: dict[int, Any]) -> "_OneMode":
        return self


class _Overrides(Library):
    """Up to torch 2.12 a library refuses what another one has overridden: a forecast within a forecast could not be."""

    def impl(self, *args: Any, **kwargs: Any) -> None:
        super().impl(*args, **{**kwargs, "allow_override": True})


@contextmanager
def as_cuda(card: Card, runtime: tuple[int, int], recorder: CallRecorder) -> Iterator[FakeTensorMode]:
    """Everything built and run inside is fake, and dispatched as it would be on the card."""
    mode = _OneMode(allow_non_fake_inputs=True)
    with _ONE_AT_A_TIME, ExitStack() as stack:
        stack.enter_context(ignored_warnings())
        # An error in the model is told once, in one sentence, not also by torch's log of how it tried.
        log = logging.getLogger("torch._subclasses.fake_tensor")
        stack.callback(log.setLevel, log.level)
        log.setLevel(logging.CRITICAL)
        stack.enter_context(caches_forget_tensors())
        library = _Overrides("aten", "IMPL")
        stack.callback(library._destroy)
        weights = CastWeights()
        register_autocast(library, weights)
        register_operators(library)
        register_attention(library, card, runtime)
        register_recurrent(library, recorder)
        register_cells(library)
        stack.enter_context(optimizers_as_on_cuda())
        stack.enter_context(autocast_cuda_is_autocast_cpu(weights))
        stack.enter_context(models_see_the_gpu())
        stack.enter_context(models_ask_about(card))
        stack.enter_context(streams_are_idle())
        stack.enter_context(fake_kernels_as_on_cuda())
        stack.enter_context(flex_attention_as_on_cuda(recorder))
        stack.enter_context(fake_tensors_give_arrays(recorder))
        stack.enter_context(_modules_convert_by_swapping())
        stack.enter_context(_real_tensors_are_copied_for_real())
        stack.enter_context(lazy_parameters_become_fake())
        stack.enter_context(_libraries_take_them_for_real())
        stack.callback(torch.clear_autocast_cache)
        stack.enter_context(mode)
        functions = [GpuMeansHere(), LengthsAreNumbers(recorder)]
        stack.enter_context(_backward_under(functions))
        for function_mode in functions:
            stack.enter_context(function_mode)
        yield mode


@contextmanager
def _backward_under(modes: list[TorchFunctionMode]) -> Iterator[None]:
    """The backward runs code of the user too, such as what was checkpointed, and torch leaves these modes for it."""
    run = torch.autograd._engine_run_backward  # type: ignore[attr-defined]
    thread = threading.get_ident()

    def run_under_modes(*args: Any, **kwargs: Any) -> Any:
        with ExitStack() as stack:
            if threading.get_ident() == thread and torch._C._len_torch_function_stack() == 0:
                for mode in modes:
                    stack.enter_context(mode)
            return run(*args, **kwargs)

    with replaced((torch.autograd, "_engine_run_backward", run_under_modes)):
        yield


def _modules_convert_by_swapping() -> AbstractContextManager[None]:
    """``module.to(...)`` swaps fake parameters in place, which torch refuses where anything holds a weak reference to
    one, as optimizers, recurrent layers and fake tensors themselves do. None of those is harmed here."""
    swap = torch.utils.swap_tensors

    def replace(old: torch.Tensor, new: torch.Tensor) -> None:
        try:
            swap(old, new)
        except RuntimeError:
            with torch.no_grad():
                old.data = new.data

    return replaced((torch.utils, "swap_tensors", replace))


def _real_tensors_are_copied_for_real() -> AbstractContextManager[None]:
    """deepcopy gives a tensor a copied storage, which torch refuses where the tensor would be fake. Real ones are the
    user's own, and what fake ones of a number keep: a teacher with BatchNorm copies such from its student."""
    copy_deep = torch.Tensor.__deepcopy__

    def copied(self: torch.Tensor, memo: dict[int, Any]) -> Any:
        with nullcontext() if isinstance(self, FakeTensor) else _disable_current_modes():
            return copy_deep(self, memo)

    return replaced((torch.Tensor, "__deepcopy__", copied))


def _libraries_take_them_for_real() -> AbstractContextManager[None]:
    """transformers asks ``torch._subclasses.FakeTensor`` whether it is being traced, and then builds attention masks
    that it leaves out in training. Here it shall do what it does in training."""
    return replaced((torch._subclasses, "FakeTensor", type("NotFake", (), {})))
