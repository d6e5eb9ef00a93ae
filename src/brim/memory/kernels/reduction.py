"""Temporaries of reductions (sum, mean, var, norm, max, all ...) on CUDA.

On the H200 (torch 2.11, 2026-11-15) every buffer was predicted to the byte: sum (1314 whole, 815 over dimensions), mean
(75, 356), vector norm (428), amax (68), var (68), std (53), argmax (68), max (68), all (67), logsumexp (65). The
records do not tell strides of permuted inputs, so for those a fitting permutation was looked for. Not measured, but the
same kernel: tensors beyond 2 GiB, ``prod``, ``any``, ``amin``, ``min``, ``max`` over a dimension, float64.
"""

import torch

from brim.memory.kernels.reduction_launch import HALVES, accumulator_size, reduce_in, reduction_plan, source_of
from brim.memory.kernels.scope import Call, Rule, Scope


def wanted_dims(call: Call, place: int) -> tuple[int, ...]:
    """The reduced dimensions among the arguments; none means all."""
    dims = call.argument(place, "dim")
    if dims is None:
        return ()
    return (dims,) if isinstance(dims, int) else tuple(dims)


def summed(call: Call, scope: Scope, dims: tuple[int, ...]) -> None:
    """Sums, means, products and norms: the input is first brought to the output's type, except halves to float32."""
    output = call.outputs[0]
    if output is None:
        return
    scope.output(0)
    source, copy = source_of(call.args[0]), None
    if source.dtype != output.dtype and not (source.dtype in HALVES and output.dtype == torch.float32):
        source = source.cast(output.dtype)
        copy = scope.allocate(source.bytes)
    lossless = source.dtype not in HALVES or output.dtype not in HALVES
    plan = reduction_plan(source, dims, output.element_size())
    reduce_in(scope, plan, accumulator_size(source.dtype), call.card, accumulates_in_output=lossless)
    if copy is not None:
        scope.free(copy)


def sum_of_all(call: Call, scope: Scope) -> None:
    """``sum``, ``mean`` and ``prod`` of a whole tensor."""
    summed(call, scope, ())


def sum_over_dims(call: Call, scope: Scope) -> None:
    """``sum``, ``mean`` and ``prod`` over dimensions."""
    summed(call, scope, wanted_dims(call, 1))


def vector_norm(call: Call, scope: Scope) -> None:
    """``linalg_vector_norm(self, ord, dim, keepdim)``."""
    summed(call, scope, wanted_dims(call, 2))


def reduced_with(call: Call, scope: Scope, dims: tuple[int, ...], accumulator: int, in_output: bool) -> None:
    output = call.outputs[0]
    if output is not None:
        plan = reduction_plan(source_of(call.args[0]), dims, output.element_size())
        reduce_in(scope, plan, accumulator, call.card, accumulates_in_output=in_output)


def extremes(call: Call, scope: Scope) -> None:
    """``amax`` and ``amin`` compare in the input's own type."""
    reduced_with(call, scope, wanted_dims(call, 1), call.args[0].element_size(), in_output=True)


def variance(call: Call, scope: Scope) -> None:
    """Welford's state: mean, squared distance, count as int32 and as a float; 16 bytes, or 32 in float64."""
    state = 32 if call.args[0].dtype == torch.float64 else 16
    reduced_with(call, scope, wanted_dims(call, 1), state, in_output=False)


def truth(call: Call, scope: Scope) -> None:
    """``all`` and ``any`` carry a bool."""
    reduced_with(call, scope, wanted_dims(call, 1), 1, in_output=True)


def flattened(call: Call, scope: Scope, accumulator: int, in_output: bool) -> None:
    """A reduction that needs the whole tensor in one row, and copies it when it is not."""
    source, output, copy = source_of(call.args[0]), call.outputs[0], None
    scope.output(0)
    if not call.args[0].is_contiguous():
        source = source.contiguous()
        copy = scope.allocate(source.bytes)
    plan = reduction_plan(source, (), output.element_size() if output is not None else 1)
    reduce_in(scope, plan, accumulator, call.card, accumulates_in_output=in_output)
    if copy is not None:
        scope.free(copy)


def extreme_of_all(call: Call, scope: Scope) -> None:
    """``max()`` and ``min()`` of a whole tensor."""
    flattened(call, scope, call.args[0].element_size(), in_output=True)


def extreme_places(call: Call, scope: Scope) -> None:
    """``argmax`` and ``max(dim)`` carry a value and an int64: 16 bytes."""
    dims = wanted_dims(call, 1)
    if dims:
        reduced_with(call, scope, dims, 16, in_output=False)
    else:
        flattened(call, scope, 16, in_output=False)


def log_sum_exp(call: Call, scope: Scope) -> None:
    """Greatest values, a look for infinities among them (absolute value and a bool each), then the exponentials, as
    large as the input, and their sum."""
    source, width = source_of(call.args[0]), call.args[0].element_size()
    plan = reduction_plan(source, wanted_dims(call, 1), width)
    maxima = scope.allocate(plan.outputs * width)
    reduce_in(scope, plan, width, call.card)
    absolute = scope.allocate(plan.outputs * width)
    scope.workspace(plan.outputs)
    scope.free(absolute)
    exponentials = scope.allocate(source.bytes)
    scope.output(0)
    reduce_in(scope, plan, accumulator_size(source.dtype), call.card)
    scope.free(exponentials)
    scope.free(maxima)


OPERATORS: dict[Rule, str] = {
    sum_of_all: "sum.default mean.default prod.default",
    sum_over_dims: "sum.dim_IntList mean.dim prod.dim_int",
    vector_norm: "linalg_vector_norm.default norm.Scalar norm.ScalarOpt_dim",
    extremes: "amax.default amin.default",
    extreme_of_all: "max.default min.default",
    extreme_places: "argmax.default argmin.default max.dim min.dim",
    variance: "var.correction std.correction var_mean.correction std_mean.correction",
    truth: "all.default all.dim all.dims any.default any.dim any.dims",
    log_sum_exp: "logsumexp.default",
}
RULES: dict[str, Rule] = {f"aten.{name}": rule for rule, names in OPERATORS.items() for name in names.split()}
