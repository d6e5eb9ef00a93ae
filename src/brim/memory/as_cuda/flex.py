"""``flex_attention`` as the kernel that torch.compile makes of it on a card; the CPU's has no backward pass.

The kernel keeps what it read, its output and one number a row; the backward pass takes another number a row beside the
gradients (``torch/_inductor/kernel/flex/flex_attention.py``). Called without torch.compile it keeps all scores: that
is not followed, and a note says so.
"""

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch._higher_order_ops.flex_attention import _permute_strides
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.attention import flex_attention as flex

from brim.memory.as_cuda.call_recorder import CallRecorder
from brim.replaced import replaced

COMPILED_CALL = "compile_wrapper"  # the function of torch._dynamo through which compiled functions are called
NOT_COMPILED = (
    "flex_attention is called without torch.compile: the forecast is that of torch.compile(flex_attention), and "
    "without it all scores are kept in memory, which is more"
)
Attended = tuple[Tensor, Tensor, Tensor]


def flex_attention_as_on_cuda(recorder: CallRecorder) -> AbstractContextManager[None]:
    """Fake tensors are attended to as on a card; others as ever."""
    validate = flex._validate_device

    def validated(query: Tensor, key: Tensor, value: Tensor) -> None:
        if not isinstance(query, FakeTensor):
            validate(query, key, value)
        elif not _is_compiled(sys._getframe(1)):
            recorder.note(NOT_COMPILED)

    return replaced(
        (flex, "_validate_device", validated),
        (flex, "flex_attention_hop", _kernel),
        (flex, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True),  # or torch.compile would look for the operator
    )


def _kernel(
    query: Tensor, key: Tensor, value: Tensor, score_mod: Callable[..., Any], block_mask: tuple[Any, ...], *_: Any
) -> Attended:
    """One call of the compiled kernel, under autocast in its type."""
    if torch.is_autocast_enabled("cpu") and query.dtype != torch.float64:
        query, key, value = (tensor.to(torch.get_autocast_dtype("cpu")) for tensor in (query, key, value))
    blocks = [part for part in block_mask if isinstance(part, Tensor)]
    biases = list(dict.fromkeys(_trained_in(score_mod)))
    made: Attended = _FlexAttention.apply(query, key, value, blocks, *biases)  # type: ignore[no-untyped-call]
    return made


class _FlexAttention(torch.autograd.Function):
    """Of which only sizes are true."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, blocks: list[Tensor], *biases: Tensor) -> Attended:
        output = _permute_strides(query.new_empty((*query.shape[:-1], value.shape[-1])), query.stride())
        logsumexp, largest = (query.new_empty(query.shape[:-1], dtype=torch.float32) for _ in range(2))
        ctx.mark_non_differentiable(largest)
        ctx.save_for_backward(query, key, value, output, logsumexp, *blocks, *biases)
        ctx.biases = len(biases)
        return output, logsumexp, largest

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, *_: Any) -> Any:
        query, key, value, _output, logsumexp, *others = ctx.saved_tensors
        rows = torch.empty_like(logsumexp)
        of_query, of_biases = torch.empty_like(query), [torch.empty_like(t) for t in others[len(others) - ctx.biases :]]
        of_pair = [tensor.new_empty((query.shape[0], *tensor.shape[1:])) for tensor in (key, value)]
        del rows
        if query.shape[0] != key.shape[0]:  # one sequence of keys for all queries
            of_pair = [tensor.sum(0, keepdim=True) for tensor in of_pair]
        return of_query, *of_pair, None, *of_biases


def _trained_in(score_mod: Callable[..., Any]) -> Iterator[Tensor]:
    """The tensors with gradients that a function of scores has by name: a bias, or one of ``self``."""
    if not inspect.isfunction(score_mod):
        return
    names = score_mod.__code__.co_names
    for held in inspect.getclosurevars(score_mod).nonlocals.values():
        named = [getattr(held, name, None) for name in names] if isinstance(held, nn.Module) else []
        yield from (value for value in (held, *named) if isinstance(value, Tensor) and value.requires_grad)


def _is_compiled(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code.co_name != COMPILED_CALL:
        frame = frame.f_back
    return frame is not None
