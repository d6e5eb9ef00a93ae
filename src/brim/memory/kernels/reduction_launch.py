"""How ATen launches a reduction, and the buffers that a launch takes.

Nearly all reductions run through one kernel of ATen, ``gpu_reduce_kernel`` (``ATen/native/cuda/Reduce.cuh``). When few
outputs are each reduced from many inputs, it splits the work of one output over several thread blocks, which meet in a
buffer in global memory; beside it lies one semaphore of four bytes per column of the grid. Both are temporaries, and
the buffer can be large: torch sizes it by ``outputs * blocks per output * block width * vector``, so the sum over the
rows of a float32[25088, 384] takes 77 MB for 1.5 KB of output.

This module re-states how ATen chooses the launch (``setReduceConfig``) from shape, strides, type, reduced dimensions
and the card's multiprocessors. It is exact, not fitted.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

import torch
from torch import Tensor

from brim.hardware.cards import Card
from brim.memory.kernels.scope import Scope

# Constants of Reduce.cuh (CUDA build).
MAX_THREADS = 512
WARP = 32
# Some kernels load 2 or 8 inputs at once, not 4; that only changes launches that do not split an output.
INPUT_VECTOR = 4
MIN_VALUES_PER_THREAD = 16
MAX_VALUES_PER_THREAD = 256
VECTORISE_FROM = 128
SEMAPHORE_BYTES = 4
INT32_MAX = 2**31 - 1

HALVES = (torch.float16, torch.bfloat16)


def divide_up(number: int, by: int) -> int:
    return -(-number // by)


def last_power_of_two(number: int) -> int:
    return 1 << (max(number, 1).bit_length() - 1)


@dataclass(frozen=True)
class Dimension:
    """One dimension of the iteration: its size and the step, in elements, of output and input along it."""

    size: int
    output_stride: int
    input_stride: int

    @property
    def reduced(self) -> bool:
        return self.output_stride == 0


@dataclass(frozen=True)
class ReductionPlan:
    """What TensorIterator hands to the kernel: dimensions from the fastest to the slowest, reduced ones first."""

    dimensions: tuple[Dimension, ...]
    offset: int
    element_size: int
    output_element_size: int

    @property
    def reduced_count(self) -> int:
        return sum(d.reduced for d in self.dimensions)

    @property
    def outputs(self) -> int:
        return prod(d.size for d in self.dimensions if not d.reduced)

    @property
    def inputs_per_output(self) -> int:
        return prod(d.size for d in self.dimensions if d.reduced)


@dataclass(frozen=True)
class Buffers:
    """Temporaries of one launch, in bytes."""

    staging: int
    semaphores: int


def keepdim_strides(shape: Sequence[int], dims: frozenset[int]) -> list[int]:
    """Strides of a contiguous output, seen with the input's shape: a reduced dimension has stride zero."""
    strides, step = [0] * len(shape), 1
    for dim in reversed(range(len(shape))):
        if dim not in dims:
            strides[dim] = step
            step *= shape[dim]
    return strides


def compare(first: Dimension, second: Dimension) -> int:
    """TensorIterator's order: 1 when ``first`` must come after ``second``, -1 before, 0 when it cannot tell."""
    if first.reduced != second.reduced:
        return 1 if second.reduced else -1
    for one, other in ((first.output_stride, second.output_stride), (first.input_stride, second.input_stride)):
        if one == 0 or other == 0:
            continue
        if one != other:
            return -1 if one < other else 1
        if first.size > second.size:
            return 1
    return 0


def ordered(dimensions: list[Dimension]) -> list[Dimension]:
    """TensorIterator's insertion sort, which starts from the last dimension and steps over ties."""
    result = dimensions[::-1]
    for start in range(1, len(result)):
        moving = start
        for place in reversed(range(start)):
            verdict = compare(result[place], result[moving])
            if verdict > 0:
                result[place], result[moving] = result[moving], result[place]
                moving = place
            elif verdict < 0:
                break
    return result


def coalesced(dimensions: list[Dimension]) -> list[Dimension]:
    """Neighbouring dimensions that step on as one are one."""
    result: list[Dimension] = []
    for dim in dimensions:
        last = result[-1] if result else None
        if last is None:
            result.append(dim)
        elif last.size == 1:
            result[-1] = dim
        elif dim.size == 1 or (
            last.size * last.output_stride == dim.output_stride and last.size * last.input_stride == dim.input_stride
        ):
            result[-1] = replace(last, size=last.size * dim.size)
        else:
            result.append(dim)
    return result


@dataclass(frozen=True)
class Source:
    """Shape, steps in elements and type of what is reduced; no tensor, so that looking at it traces nothing."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    dtype: torch.dtype

    @property
    def bytes(self) -> int:
        return prod(self.shape) * self.dtype.itemsize

    def cast(self, dtype: torch.dtype) -> "Source":
        """The copy of ``to(dtype)``: its strides stay."""
        return replace(self, dtype=dtype, offset=0)

    def contiguous(self) -> "Source":
        return replace(self, strides=tuple(keepdim_strides(self.shape, frozenset())), offset=0)


def source_of(tensor: Tensor) -> Source:
    return Source(tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset()), tensor.dtype)


def reduction_plan(source: Source, dims: Sequence[int], output_element_size: int) -> ReductionPlan:
    """The iteration of a reduction over ``dims`` (none: over all)."""
    rank = len(source.shape)
    over = frozenset(dim % rank for dim in dims) if rank and len(dims) else frozenset(range(rank))
    outputs = keepdim_strides(source.shape, over)
    dimensions = [Dimension(*d) for d in zip(source.shape, outputs, source.strides, strict=True)]
    fused = tuple(coalesced(ordered(dimensions)))
    return ReductionPlan(fused, source.offset, source.dtype.itemsize, output_element_size)


def output_vector(plan: ReductionPlan) -> int:
    """How many neighbouring outputs one load serves: all strides and the start must be divisible by it."""
    at = plan.reduced_count
    numbers = [plan.offset, plan.dimensions[at].size]
    numbers += [d.input_stride for place, d in enumerate(plan.dimensions) if place != at]
    vector = 4
    for number in numbers:
        while number % vector:
            vector //= 2
    return vector


def block_shape(dim0: int, dim1: int, max_threads: int) -> tuple[int, int]:
    """Width and height of a thread block for the fastest and the other extent."""
    width_limit = last_power_of_two(dim0) if dim0 < max_threads else max_threads
    height_limit = last_power_of_two(dim1) if dim1 < max_threads else max_threads
    height = min(height_limit, max_threads // min(width_limit, WARP))
    return min(width_limit, max_threads // height), height


def blocks_per_output(values_per_thread: int, columns: int, threads: int, card: Card) -> int:
    """Over how many thread blocks one output is split: enough to fill the card, each with enough to do."""
    target = card.multiprocessors * (card.threads_per_multiprocessor // threads)
    if values_per_thread < MAX_VALUES_PER_THREAD or columns > target:
        return 1
    filling = min(divide_up(target, columns), divide_up(values_per_thread, MIN_VALUES_PER_THREAD))
    return max(filling, divide_up(values_per_thread, MAX_VALUES_PER_THREAD))


def runs_along_input(plan: ReductionPlan) -> bool:
    """Whether the fastest moving dimension of the input is a reduced one."""
    at = plan.reduced_count
    if at == len(plan.dimensions):
        return True
    return plan.dimensions[0].input_stride < plan.dimensions[at].input_stride


def vector_sizes(plan: ReductionPlan) -> tuple[int, int]:
    """Elements per load along the input and along the output."""
    along_input = runs_along_input(plan)
    fastest = plan.dimensions[0 if along_input else plan.reduced_count].input_stride if plan.dimensions else 1
    if fastest != 1:
        return 1, 1
    if not along_input:
        return 1, output_vector(plan)
    wide = plan.inputs_per_output >= VECTORISE_FROM and plan.reduced_count == 1
    return (INPUT_VECTOR if wide else 1), 1


def launch_buffers(plan: ReductionPlan, accumulator: int, card: Card) -> Buffers | None:
    """ATen's ``setReduceConfig``: what one launch takes, or nothing when each output stays inside one block."""
    along_input = runs_along_input(plan)
    outputs, inputs = plan.outputs, plan.inputs_per_output
    dim0, dim1 = (inputs, outputs) if along_input else (outputs, inputs)
    input_vector, vector = vector_sizes(plan)
    width, height = block_shape(dim0 // (input_vector * vector), dim1, MAX_THREADS // vector)
    step_input, step_output = (width, 1) if along_input else (1, width)
    values = divide_up(inputs, step_input)
    if values < min(height * MIN_VALUES_PER_THREAD, MAX_VALUES_PER_THREAD):
        return None
    columns = divide_up(outputs // vector, step_output)
    blocks = blocks_per_output(divide_up(inputs, step_input * height), columns, width * height, card)
    if blocks == 1:
        return None
    staging = accumulator * outputs * blocks * (1 if along_input else width * vector)
    return Buffers(staging, SEMAPHORE_BYTES * columns)


def fits_32_bits(plan: ReductionPlan) -> bool:
    if prod(d.size for d in plan.dimensions) > INT32_MAX:
        return False
    output = sum((d.size - 1) * d.output_stride for d in plan.dimensions) * plan.output_element_size
    source = sum((d.size - 1) * d.input_stride for d in plan.dimensions) * plan.element_size
    return max(output, source) < INT32_MAX


def launches(plan: ReductionPlan) -> Iterator[ReductionPlan]:
    """A tensor beyond 2 GiB is halved along its widest dimension until 32-bit offsets reach all of it."""
    if fits_32_bits(plan):
        yield plan
        return
    extents = [
        (d.size - 1) * max(d.input_stride * plan.element_size, d.output_stride * plan.output_element_size)
        for d in plan.dimensions
    ]
    widest = max(reversed(range(len(extents))), key=lambda place: extents[place])
    dim = plan.dimensions[widest]
    half = dim.size // 2
    for size, start in ((half, 0), (dim.size - half, half)):
        parts = list(plan.dimensions)
        parts[widest] = replace(dim, size=size)
        yield from launches(replace(plan, dimensions=tuple(parts), offset=plan.offset + start * dim.input_stride))


def reduce_in(
    scope: Scope, plan: ReductionPlan, accumulator: int, card: Card, accumulates_in_output: bool = True
) -> None:
    """What the kernel takes and gives back for one reduction."""
    if not plan.outputs or not plan.inputs_per_output:
        return
    held = None
    if not (fits_32_bits(plan) or accumulates_in_output or plan.output_element_size >= accumulator):
        # Halves of the input meet in accumulators of their own where the output is too narrow to hold them.
        held = scope.allocate(plan.outputs * accumulator)
    for part in launches(plan):
        buffers = launch_buffers(part, accumulator, card)
        if buffers is not None:
            staging = scope.allocate(buffers.staging)
            scope.workspace(buffers.semaphores)
            scope.free(staging)
    if held is not None:
        scope.free(held)


def accumulator_size(dtype: torch.dtype) -> int:
    """Halves are added up as float32, the rest as they are."""
    return 4 if dtype in HALVES else dtype.itemsize
