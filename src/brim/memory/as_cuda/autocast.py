"""CUDA's autocast lists on the CPU's autocast key.

Mixed precision decides operator by operator which type it computes in, and the lists differ between devices:
layer_norm, softmax and exp run in fp32 on CUDA and not on the CPU, cat and stack the other way round. Which operators
CUDA's autocast knows can be read from the dispatcher even in a build without CUDA; what it does with them is in
``aten/src/ATen/autocast_mode.h``, and stated here for the groups that are not "run in fp32".
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.library import Library, fallthrough_kernel
from torch.utils.weak import WeakTensorKeyDictionary

from brim.replaced import replaced

LOWER_PRECISION = {
    "_convolution", "convolution", "cudnn_convolution", "cudnn_convolution_transpose", "addmv", "addr", "chain_matmul",
    "einsum", "mv", "prelu", "linalg_multi_dot", "_thnn_fused_lstm_cell", "_thnn_fused_gru_cell", "lstm_cell",
    "gru_cell", "rnn_tanh_cell", "rnn_relu_cell", "_scaled_dot_product_flash_attention",
}  # fmt: skip
# These take the widest type among their inputs.
WIDEST_TYPE = {
    "addcdiv", "addcmul", "atan2", "bilinear", "cross", "dot", "vdot", "grid_sampler", "index_put", "tensordot",
    "scatter_add",
}  # fmt: skip
# These are told to compute in fp32 through their dtype argument, so that no fp32 copy of the input is made.
DTYPE_ARGUMENT = {
    "softmax.int", "log_softmax.int", "cumsum", "cumprod", "prod", "prod.dim_int", "sum", "sum.dim_IntList",
    "linalg_vector_norm", "linalg_matrix_norm", "linalg_matrix_norm.str_ord",
}  # fmt: skip
LOW = (torch.float16, torch.bfloat16)

AUTOCAST_KEY = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)


class CastWeights:
    """Autocast keeps the casts of weights until its block ends: a cell that is called for every step casts them once.

    torch's own cache serves the operators of the CPU's list alone; this one serves those that are only on CUDA's.
    """

    def __init__(self) -> None:
        self._casts: WeakTensorKeyDictionary = WeakTensorKeyDictionary()

    def cast(self, tensor: Tensor, dtype: torch.dtype) -> Tensor:
        """The tensor in this type, as torch's ``cached_cast`` gives it."""
        is_weight = tensor.requires_grad and tensor.is_leaf and not tensor._is_view()
        if not (is_weight and tensor.dtype == torch.float32 and dtype in LOW and torch.is_autocast_cache_enabled()):
            return tensor.to(dtype)
        known: Tensor | None = self._casts.get(tensor)
        if known is None or known.dtype != dtype:
            known = self._casts[tensor] = tensor.to(dtype)
        return known

    def clear(self) -> None:
        self._casts.clear()


def register_autocast(library: Library, weights: CastWeights) -> None:
    """Make autocast on the CPU treat every operator as autocast on CUDA would."""
    unknown_to_cuda, other_on_cuda = _differences()
    for name in unknown_to_cuda:
        library.impl(name, fallthrough_kernel, "AutocastCPU")
    for name in other_on_cuda:
        library.impl(name, _kernel(name, weights), "AutocastCPU")


@cache  # torch's own lists: they stay as they are, and 6,000 questions to the dispatcher were a quarter of a forecast
def _differences() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Operators that the CPU's list has and CUDA's has not, and those with which CUDA does something else."""
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    unknown_to_cuda, other_on_cuda = [], []
    for name in _operator_names():
        on_cuda, on_cpu = has(f"aten::{name}", "AutocastCUDA"), has(f"aten::{name}", "AutocastCPU")
        if on_cpu and not on_cuda:
            unknown_to_cuda.append(name)
        elif on_cuda and (not on_cpu or name in DTYPE_ARGUMENT):
            other_on_cuda.append(name)
    return tuple(unknown_to_cuda), tuple(other_on_cuda)


def _operator_names() -> Iterator[str]:
    for name in torch._C._dispatch_get_all_op_names():
        if name.startswith("aten::"):
            yield name.removeprefix("aten::")


def _kernel(name: str, weights: CastWeights) -> Callable[..., Any]:
    base, _, overload = name.partition(".")
    operator = getattr(getattr(torch.ops.aten, base), overload or "default")
    if name in DTYPE_ARGUMENT:
        return _with_dtype(operator)
    if name in LOWER_PRECISION:
        eligible = (torch.float32, *LOW)
        return _with_inputs_in(operator, lambda tensors: torch.get_autocast_dtype("cpu"), eligible, weights.cast)
    if name in WIDEST_TYPE:
        return _with_inputs_in(operator, _widest, LOW)
    return _with_inputs_in(operator, lambda tensors: torch.float32, LOW)


def _widest(tensors: list[Tensor]) -> torch.dtype:
    types = {tensor.dtype for tensor in tensors if tensor.is_floating_point()}
    if torch.float32 in types or len(types) > 1:
        return torch.float32
    return types.pop() if types else torch.float32


def _with_inputs_in(
    operator: Callable[..., Any], choose: Callable[[list[Tensor]], torch.dtype], eligible: tuple[torch.dtype, ...],
    to: Callable[[Tensor, torch.dtype], Tensor] = Tensor.to,
) -> Callable[..., Any]:  # fmt: skip
    def kernel(*args: Any, **kwargs: Any) -> Any:
        dtype = choose([a for a in args if isinstance(a, Tensor)])

        def cast(value: Any) -> Any:
            if isinstance(value, Tensor):
                return to(value, dtype) if value.dtype in eligible else value
            if isinstance(value, list | tuple) and value and isinstance(value[0], Tensor):
                return [cast(item) for item in value]
            return value

        with torch._C._ExcludeDispatchKeyGuard(AUTOCAST_KEY):
            return operator(*[cast(a) for a in args], **{key: cast(value) for key, value in kwargs.items()})

    return kernel


def _with_dtype(operator: Callable[..., Any]) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        named = kwargs.get("dtype") is not None or any(isinstance(a, torch.dtype) for a in args)
        if not named and args[0].is_floating_point():
            # The dtype is the last positional argument of softmax and log_softmax, and a keyword of the others.
            args = args[:-1] if args[-1] is None and len(args) > 2 and not kwargs else args
            kwargs = {**kwargs, "dtype": torch.float32}
        with torch._C._ExcludeDispatchKeyGuard(AUTOCAST_KEY):
            return operator(*args, **kwargs)

    return kernel


def autocast_cuda_is_autocast_cpu(weights: CastWeights) -> AbstractContextManager[None]:
    """``torch.autocast("cuda")`` acts on the fake tensors, and models that ask whether it is on are told so."""
    clear_torchs = torch.clear_autocast_cache
    autocast = torch.amp.autocast_mode.autocast
    made, entered, left = autocast.__init__, autocast.__enter__, autocast.__exit__

    def init(self: Any, device_type: str, *args: Any, **kwargs: Any) -> None:
        made(self, "cpu" if device_type == "cuda" else device_type, *args, **kwargs)

    def enter(self: Any) -> Any:
        result = entered(self)
        self.seen_before = torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")
        _show(torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu"))
        return result

    def leave(self: Any, *error: Any) -> Any:
        _show(*self.seen_before)
        return left(self, *error)

    def clear() -> None:  # torch does so at the end of the outermost block
        weights.clear()
        clear_torchs()

    return replaced(
        (autocast, "__init__", init), (autocast, "__enter__", enter), (autocast, "__exit__", leave),
        (torch, "clear_autocast_cache", clear),
    )  # fmt: skip


def _show(enabled: bool, dtype: torch.dtype) -> None:
    """What CUDA's own autocast says of itself; fake tensors on the CPU do not follow it."""
    torch.set_autocast_enabled("cuda", enabled)
    torch.set_autocast_dtype("cuda", dtype)
