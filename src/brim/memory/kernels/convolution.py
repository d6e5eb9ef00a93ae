"""What a convolution takes for itself: the copies torch makes before it calls cuDNN, and cuDNN's workspace.

The copies follow torch's own order, as it showed in the traces. The workspace is taken from the nearest convolutions
that were measured (`convolution_measured`), which fall back on fitted rules (`convolution_rules`).
"""

import math

import torch
from torch import Tensor
from torch._prims_common import suggest_memory_format

from brim.memory.kernels.convolution_measured import Pass, workspace
from brim.memory.kernels.convolution_rules import Problem
from brim.memory.kernels.reduction_launch import HALVES, accumulator_size, reduce_in, reduction_plan, source_of
from brim.memory.kernels.scope import Call, Rule, Scope

#: Images with more numbers than this are cut into smaller batches, which go through one after the other.
MOST_NUMBERS = 2**31


def convolution(call: Call, scope: Scope) -> None:
    """``aten.convolution``: torch lays out x, makes the output, lays out the filter, calls cuDNN."""
    x, weight = call.args[0], call.args[1]
    problem = _problem(call, x, weight, call.outputs[0], stride=3)
    layout = _layout(x, weight)
    x_copy = scope.copy(x, layout)
    scope.output(0)
    filter_copy = scope.copy(weight, layout)
    _workspace(scope, problem, Pass.INPUT if problem.transposed else Pass.FORWARD)
    scope.free(filter_copy, x_copy)


def convolution_backward(call: Call, scope: Scope) -> None:
    """``aten.convolution_backward``: the gradient of x, of the filter, and last of the bias, where they are wanted."""
    grad, x, weight = call.args[0], call.args[1], call.args[2]
    wanted = call.argument(10, "output_mask")
    problem = _problem(call, x, weight, grad, stride=4)
    layout = _layout(x, weight)
    x_copy = scope.copy(x, layout) if wanted[1] else None
    # torch brings grad into the layout of x, but lets pass what has it with gaps (a slice of channels); then each of
    # the two gradients copies it for itself.
    at_once = problem.transposed or problem.torch_kernel or grad.dim() < 4 or _preferred(grad) is not _preferred(x)
    grad_copy = scope.copy(grad, layout) if at_once else None
    gaps = not at_once and not grad.is_contiguous(memory_format=layout)
    if wanted[0]:
        _gradient_of_x(scope, problem, weight, grad if gaps else None, layout)
    if wanted[1]:
        _gradient_of_filter(scope, problem, grad if gaps else None, layout)
    scope.free(grad_copy, x_copy)
    if wanted[2]:
        scope.output(2)
        _sum_for_bias(call, scope, grad)


def unfold_or_fold(call: Call, scope: Scope) -> None:
    """``im2col`` and ``col2im``: ATen makes a tensor like the input and calls ``resize_``, which gives nothing back."""
    given, made = call.args[0], call.outputs[0]
    if made is not None and made.nbytes <= given.nbytes:
        made.untyped_storage().resize_(given.nbytes)
        scope.output(0)
        scope.copy(given)
    else:
        first = scope.allocate(given.nbytes)
        input_copy = scope.copy(given)
        scope.output(0)
        scope.free(first, input_copy)


RULES: dict[str, Rule] = {
    "aten.convolution.default": convolution,
    "aten.convolution_backward.default": convolution_backward,
    "aten.im2col.default": unfold_or_fold,
    "aten.col2im.default": unfold_or_fold,
}


def _gradient_of_x(
    scope: Scope, problem: Problem, weight: Tensor, grad: Tensor | None, layout: torch.memory_format
) -> None:
    scope.output(0)
    filter_copy = scope.copy(weight, layout)
    grad_copy = None if grad is None else scope.copy(grad, layout)
    _workspace(scope, problem, Pass.FORWARD if problem.transposed else Pass.INPUT)
    scope.free(grad_copy, filter_copy)


def _gradient_of_filter(scope: Scope, problem: Problem, grad: Tensor | None, layout: torch.memory_format) -> None:
    grad_copy = None if grad is None else scope.copy(grad, layout)
    scope.output(1)
    _workspace(scope, problem, Pass.WEIGHT)
    scope.free(grad_copy)


def _sum_for_bias(call: Call, scope: Scope, grad: Tensor) -> None:
    """``grad.sum`` over all but the channels, as it came: with channels last it takes more than over planes."""
    dims = (0, *range(2, grad.dim()))
    plan = reduction_plan(source_of(grad), dims, grad.element_size())
    lossless = grad.dtype not in HALVES
    reduce_in(scope, plan, accumulator_size(grad.dtype), call.card, accumulates_in_output=lossless)


def _problem(call: Call, x: Tensor, weight: Tensor, y: Tensor | None, stride: int) -> Problem:
    """The problem behind a call; ``stride`` is the place of that argument, others follow in the order of aten."""
    assert y is not None, "a convolution always has an output"
    transposed = call.argument(stride + 3, "transposed")
    image, outcome = (y.shape, x.shape) if transposed else (x.shape, y.shape)
    batch = _batch_at_once(image, outcome)
    sides, kernel = outcome[2:], weight.shape[2:]
    return Problem(
        batch=batch,
        channels_in=image[1],
        channels_out=outcome[1],
        groups=call.argument(stride + 5, "groups"),
        pixels_in=math.prod(image[2:]),
        pixels_out=math.prod(sides),
        taps=math.prod(kernel),
        strided=max(call.argument(stride, "stride")) > 1,
        element=x.element_size(),
        channels_last=_layout(x, weight) is not torch.contiguous_format,
        transposed=transposed,
        blocks=call.card.multiprocessors,
        squares=batch * math.prod(math.ceil(side / 4) for side in sides) if len(sides) == 2 else 0,
        dimensions=len(sides),
        widest=max(kernel),
        dilated=max(call.argument(stride + 2, "dilation")) > 1,
        fp16=x.dtype is torch.float16,
    )


def _batch_at_once(image: torch.Size, outcome: torch.Size) -> int:
    """How many images go through at once: all, unless they have too many numbers for 32 bits."""
    numbers_an_image = max(math.prod(image[1:]), math.prod(outcome[1:]), 1)
    return min(image[0], max(1, MOST_NUMBERS // numbers_an_image))


def _preferred(tensor: Tensor) -> torch.memory_format:
    """The layout that a tensor's strides suggest; torch always makes planes of one-dimensional images."""
    return torch.contiguous_format if tensor.dim() < 4 else suggest_memory_format(tensor)


def _layout(x: Tensor, weight: Tensor) -> torch.memory_format:
    """cuDNN gets channels last as soon as either the image or the filter has it."""
    layout = _preferred(x)
    return _preferred(weight) if layout is torch.contiguous_format else layout


def _workspace(scope: Scope, problem: Problem, direction: Pass) -> None:
    size = workspace(problem, direction)
    if size > 0:  # torch tries cuDNN's plans in turn, and leaves one whose workspace finds no room
        scope.workspace(size, optional=True)
