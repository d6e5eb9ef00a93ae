"""Composite operators that take another way through torch on CUDA than on the CPU."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._prims_common import suggest_memory_format
from torch._subclasses.fake_tensor import FakeTensor
from torch.library import Library
from torch.utils._pytree import tree_leaves

aten = torch.ops.aten


def register_operators(library: Library) -> None:
    """Send these operators the way that CUDA sends them."""
    for name, kernel in (
        ("dropout", _dropout),
        ("softmax.int", _softmax),
        ("log_softmax.int", _log_softmax),
        ("rms_norm", _rms_norm),
        ("batch_norm", _batch_norm),
    ):
        library.impl(name, for_fake_tensors(name, kernel), "AutogradCPU")


def for_fake_tensors(name: str, kernel: Callable[..., Any]) -> Callable[..., Any]:
    """The kernel for fake tensors, and torch's own for others: other threads may compute while a forecast is made."""
    base, _, overload = name.partition(".")
    operator = getattr(getattr(aten, base), overload or "default")

    def choose(*args: Any, **kwargs: Any) -> Any:
        if any(isinstance(leaf, FakeTensor) for leaf in tree_leaves((args, kwargs))):
            return kernel(*args, **kwargs)
        return operator.decompose(*args, **kwargs)

    return choose


def _dropout(x: Tensor, probability: float, train: bool) -> Tensor:
    """One byte a mask element; the CPU keeps a mask in the type of the input."""
    if not train or probability == 0 or x.numel() == 0:
        return x
    kept: Tensor = aten.native_dropout(x, probability, True)[0]
    return kept


def _softmax(x: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    return _softmax_in(aten._softmax, x, dim, dtype)


def _log_softmax(x: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    return _softmax_in(aten._log_softmax, x, dim, dtype)


def _softmax_in(operator: Any, x: Tensor, dim: int, dtype: torch.dtype | None) -> Tensor:
    """From fp16 to fp32 in one kernel: CUDA makes no fp32 copy of the input. From bf16 it does."""
    if dtype == torch.float32 and x.dtype == torch.float16:
        return _HalfToFloat.apply(operator, x, dim)  # type: ignore[no-any-return, no-untyped-call]
    result: Tensor = operator(x if dtype is None else x.to(dtype), dim, False)
    return result


class _HalfToFloat(torch.autograd.Function):
    """softmax with ``half_to_float``, which the CPU's kernels refuse."""

    @staticmethod
    def forward(ctx: Any, operator: Any, x: Tensor, dim: int) -> Tensor:
        result = torch.empty_like(x, dtype=torch.float32)
        ctx.save_for_backward(result)
        ctx.operator, ctx.dim, ctx.input_dtype = operator, dim, x.dtype
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        (result,) = ctx.saved_tensors
        if ctx.operator is aten._softmax:
            torch.empty_like(gradient)  # CUDA multiplies gradient and output first
            return None, torch.empty_like(result, dtype=ctx.input_dtype), None
        to_input = torch.empty_like(result, dtype=ctx.input_dtype)
        gradient.contiguous()  # a copy, where it is not so already
        return None, to_input, None


def _rms_norm(x: Tensor, shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None) -> Tensor:
    return _RmsNorm.apply(x, weight, len(shape))  # type: ignore[no-any-return, no-untyped-call]


class _RmsNorm(torch.autograd.Function):
    """CUDA's fused kernel keeps the input and one fp32 number a row; the CPU computes it in steps."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor | None, dims: int) -> Tensor:
        result = torch.empty_like(x)
        scale = x.new_empty(x.shape[: x.dim() - dims] + (1,) * dims, dtype=torch.float32)
        ctx.save_for_backward(x, weight, scale)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        x, weight, _ = ctx.saved_tensors
        return torch.empty_like(x), None if weight is None else torch.empty_like(weight), None


def _batch_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor | None, variance: Tensor | None, training: bool,
    momentum: float, eps: float, cudnn_enabled: bool,
) -> Tensor:  # fmt: skip
    """cuDNN for images in fp32 with a weight, torch's own kernel for everything else."""
    complete = weight is not None and bias is not None and mean is not None and variance is not None
    operator = aten.native_batch_norm
    if training and complete and _is_image_in_fp32(x):
        # torch hands cuDNN a copy of a view that is not in one piece, and keeps the copy for the backward.
        operator, x = aten.cudnn_batch_norm, x.contiguous(memory_format=suggest_memory_format(x))
    result: Tensor = operator(x, weight, bias, mean, variance, training, momentum, eps)[0]
    return result


def _is_image_in_fp32(x: Tensor) -> bool:
    return x.dtype == torch.float32 and x.dim() in (3, 4, 5)
