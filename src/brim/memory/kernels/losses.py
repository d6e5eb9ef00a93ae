"""Losses that one kernel computes: an element of its own for each of the input's, and their mean.

After ATen's source (``native/Loss.cpp``, ``native/cuda/Loss.cu``), but for the binary cross-entropy of logits, which
gives the measured sizes on all 73 records of the H200 (torch 2.11, 2026-11-15); weights of elements were not measured.

Four of these losses lie in a storage as large as all their elements, for as long as somebody holds them: ATen makes the
number by ``resize_`` of a tensor of elements, which gives nothing back. Fake tensors know nothing of it.
"""

from math import prod

import torch
from torch import Tensor

from brim.memory.kernels.reduction_launch import Source, accumulator_size, keepdim_strides, reduce_in, reduction_plan
from brim.memory.kernels.scope import Call, Rule, Scope

NONE = 0  # the reduction


def size_of_elements(call: Call) -> tuple[int, ...]:
    """Input and target, broadcast."""
    target = call.argument(1, "target")
    shape: tuple[int, ...] = torch.broadcast_shapes(call.args[0].shape, target.shape)
    return tuple(shape)


def reduce_elements(call: Call, scope: Scope) -> None:
    """Their mean or sum, in the type of the loss."""
    loss, shape = call.outputs[0], size_of_elements(call)
    dtype = call.args[0].dtype if loss is None else loss.dtype
    source = Source(shape, tuple(keepdim_strides(shape, frozenset())), 0, dtype)
    reduce_in(scope, reduction_plan(source, (), dtype.itemsize), accumulator_size(dtype), call.card)


def among_elements(call: Call, scope: Scope, reduction: int) -> Tensor | None:
    """The loss comes to life, in the storage of its elements; None where they are not reduced."""
    loss = call.outputs[0]
    if reduction == NONE or loss is None:
        scope.outputs(call, 0)
        return None
    loss.untyped_storage().resize_(prod(size_of_elements(call)) * loss.element_size())
    scope.output(0)
    return loss


def squared_error(call: Call, scope: Scope) -> None:
    """``mse_loss`` and ``smooth_l1_loss``: the elements that are added up are beside that storage."""
    loss = among_elements(call, scope, call.argument(2, "reduction", 1))
    if loss is not None:
        elements = scope.allocate(loss.untyped_storage().nbytes())
        reduce_elements(call, scope)
        scope.free(elements)


def huber(call: Call, scope: Scope) -> None:
    """``huber_loss``: elements that go once their mean is there."""
    if call.argument(2, "reduction", 1) == NONE:
        scope.outputs(call, 0)
        return
    elements = scope.allocate(call.args[0].nbytes)
    scope.outputs(call, 0)
    reduce_elements(call, scope)
    scope.free(elements)


def in_place(call: Call, scope: Scope, reduction: int) -> None:
    """The elements that are added up are in that storage, and their mean beside it."""
    loss = among_elements(call, scope, reduction)
    if loss is not None:
        mean = scope.allocate(loss.element_size())
        reduce_elements(call, scope)
        scope.free(mean)


def soft_margin(call: Call, scope: Scope) -> None:
    in_place(call, scope, call.argument(2, "reduction", 1))


def binary_cross_entropy(call: Call, scope: Scope) -> None:
    in_place(call, scope, call.argument(3, "reduction", 1))


def binary_cross_entropy_with_logits(call: Call, scope: Scope) -> None:
    """``(self, target, weight, pos_weight, reduction)``: the log-sigmoid and the loss per element."""
    source, reduction = call.args[0], call.argument(4, "reduction", 1)
    logs = scope.allocate(source.nbytes)
    weights = scope.allocate(source.nbytes) if call.argument(3, "pos_weight") is not None else None
    if reduction == NONE:
        scope.outputs(call, 0)
    else:
        losses = scope.allocate(source.nbytes)
        scope.outputs(call, 0)
        reduce_elements(call, scope)
        scope.free(losses)
    scope.free(weights, logs)


RULES: dict[str, Rule] = {
    "aten.mse_loss.default": squared_error,
    "aten.smooth_l1_loss.default": squared_error,
    "aten.huber_loss.default": huber,
    "aten.soft_margin_loss.default": soft_margin,
    "aten.binary_cross_entropy.default": binary_cross_entropy,
    "aten.binary_cross_entropy_with_logits.default": binary_cross_entropy_with_logits,
}
