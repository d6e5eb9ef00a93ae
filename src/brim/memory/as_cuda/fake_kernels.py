"""What fake tensors on the CPU refuse, and CUDA computes: grouped matrix products in fp32, histograms of whole numbers.

torch's fake tensors ask its "meta" kernels for shapes. Those of a few operators are stricter than CUDA's own kernels,
or speak for the CPU alone; they are exchanged for as long as the context lasts.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch._subclasses import fake_impls

TMA_BYTES = 16  # rows of a grouped product begin at multiples of this, in every type

aten = torch.ops.aten


def grouped_product(left: Tensor, right: Tensor, offsets: Tensor | None, dtype: torch.dtype | None = None) -> Tensor:
    """The output of ``_grouped_mm``: CUDA takes bf16, fp16 and fp32, and pads the rows of what it writes."""
    shape: tuple[int, ...]
    if left.dim() == 2 and right.dim() == 2:  # groups along the inner dimension: the gradient of the weights
        groups = 1 if offsets is None else offsets.shape[0]
        shape = (groups, left.shape[0], right.shape[1])
    elif left.dim() == 2:
        shape = (left.shape[0], right.shape[-1])
    elif right.dim() == 2:
        shape = (left.shape[1], right.shape[1])
    else:
        shape = (left.shape[0], left.shape[1], right.shape[-1])
    dtype = dtype or left.dtype
    padded = -(-shape[-1] * dtype.itemsize // TMA_BYTES) * TMA_BYTES // dtype.itemsize
    strides = (padded, 1) if len(shape) == 2 else (shape[1] * padded, padded, 1)
    return left.new_empty_strided(shape, strides, dtype=dtype)


def _grouped_mm(
    mode: Any, function: Any, left: Tensor, right: Tensor, offs: Tensor | None = None, bias: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> Tensor:  # fmt: skip
    if not left.is_floating_point() or left.dtype != right.dtype or left.shape[-1] != right.shape[-2]:
        raise RuntimeError(
            f"_grouped_mm takes two factors of one type whose inner sizes agree, and got {left.dtype} "
            f"{tuple(left.shape)} and {right.dtype} {tuple(right.shape)}"
        )
    with mode:
        return grouped_product(left, right, offs, out_dtype)


def _histc(mode: Any, function: Any, values: Tensor, bins: int = 100, min: Any = 0, max: Any = 0) -> Tensor:
    with mode:
        return values.new_empty(bins)


KERNELS: dict[Any, Callable[..., Tensor]] = {aten._grouped_mm.default: _grouped_mm, aten.histc.default: _histc}


@contextmanager
def fake_kernels_as_on_cuda() -> Iterator[None]:
    """Fake tensors answer as CUDA's kernels would."""
    known = fake_impls.op_implementations_dict
    before = {operator: known.get(operator) for operator in KERNELS}
    known.update(KERNELS)
    try:
        yield
    finally:
        for operator, kernel in before.items():
            if kernel is None:
                known.pop(operator, None)
            else:
                known[operator] = kernel
