"""Buffers of reductions, against records of an H200 (torch 2.11)."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from brim.hardware.cards import H200
from brim.memory.kernels.reduction import RULES
from brim.memory.kernels.scope import Call, Scope


def meta(shape: Sequence[int], dtype: torch.dtype = torch.float32, layout: str = "") -> Tensor:
    if layout == "transposed":
        order = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
        return torch.empty([shape[d] for d in order], dtype=dtype, device="meta").transpose(-1, -2)
    tensor = torch.empty(list(shape), dtype=dtype, device="meta")
    return tensor.to(memory_format=torch.channels_last) if layout == "channels_last" else tensor


def temporaries(operator: str, *args: object, **kwargs: object) -> list[int]:
    _, name, overload = operator.split(".")
    result = getattr(getattr(torch.ops.aten, name), overload)(*args, **kwargs)
    outputs = result if isinstance(result, tuple) else (result,)
    scope = Scope()
    RULES[operator](Call(operator, args, kwargs, outputs, H200), scope)
    return [step.size for step in scope.steps if step.size > 0]


SUMS = [
    ([1568, 384], torch.float32, "", [0], [4_915_200, 12]),
    ([1568, 1536], torch.float32, "", [0], [19_660_800, 48]),
    ([25088, 384], torch.float32, "", [0], [77_070_336, 12]),
    ([25088, 96], torch.float32, "", [0], [4_816_896, 8]),
    ([8, 192, 28, 28], torch.float32, "channels_last", [0, 2, 3], [9_633_792, 8]),
    ([2048, 768], torch.float16, "", [0], [12_582_912, 24]),
    ([8192, 64], torch.bfloat16, "", [0], [1_048_576, 4]),
    ([384, 512, 7], torch.float32, "", [0, 1], [10_752, 8]),
    ([128, 3072, 32, 2], torch.float16, "", [0, 1, 2], [16_896, 4]),
    ([512, 50257], torch.float32, "", [0], []),
    ([7, 2048], torch.bfloat16, "", [0], []),
    ([2048, 3, 128], torch.float32, "", [0, 1, 2], [384, 4]),
]


@pytest.mark.parametrize(("shape", "dtype", "layout", "dims", "expected"), SUMS)
def test_sum_over_dimensions(
    shape: list[int], dtype: torch.dtype, layout: str, dims: list[int], expected: list[int]
) -> None:
    source = meta(shape, dtype, layout)
    assert temporaries("aten.sum.dim_IntList", source, dims, True) == expected


@pytest.mark.parametrize(
    ("operator", "source", "args", "expected"),
    [
        ("aten.sum.default", meta([5000, 64]), (), [160, 4]),
        ("aten.sum.default", meta([1024, 512], torch.bool), (), [4_194_304, 512, 4]),
        ("aten.sum.dim_IntList", meta([100, 64, 384]).permute(2, 0, 1), ([1, 2],), [19_660_800, 12]),
        ("aten.mean.default", meta([4096, 50257]), (), [6284, 4]),
        ("aten.mean.dim", meta([128, 2048, 256], torch.float16), ([0, 1],), [138_412_032, 8]),
        ("aten.mean.dim", meta([16, 512, 4096], torch.float16), ([0, 1], True), [138_412_032, 128]),
        (
            "aten.linalg_vector_norm.default",
            meta([1000, 2048], torch.bfloat16, "transposed"),
            (2, [-1]),
            [16_384_000, 32],
        ),
        ("aten.amax.default", meta([2048, 384], torch.float16), ([0],), [3_145_728, 12]),
        ("aten.var.correction", meta([2048, 384], torch.float16), ([0],), [25_165_824, 12]),
        ("aten.var.correction", meta([4096, 512, 100], torch.bfloat16), ([0, 2],), [32_768, 2048]),
        ("aten.std.correction", meta([1000, 384]), (), [752, 4]),
        ("aten.argmax.default", meta([1000, 2048], torch.bfloat16, "transposed"), (-1,), [65_536_000, 32]),
        ("aten.all.default", meta([4096, 50257], torch.bool), (), [1571, 4]),
        ("aten.max.default", meta([1000, 2048], torch.bfloat16, "transposed"), (), [4_096_000, 500, 4]),
        ("aten.logsumexp.default", meta([512, 50257]), ([1],), [2048, 2048, 512, 102_926_336]),
        ("aten.logsumexp.default", meta([7, 128, 512]), ([0, 1, 2],), [4, 224, 4, 4, 1, 1_835_008, 224, 4]),
    ],
)
def test_records(operator: str, source: Tensor, args: tuple[object, ...], expected: list[int]) -> None:
    assert temporaries(operator, source, *args) == expected


def test_halves_accumulate_in_float32() -> None:
    assert temporaries("aten.sum.dim_IntList", meta([4096, 512], torch.bfloat16), [0]) == temporaries(
        "aten.sum.dim_IntList", meta([4096, 512], torch.float32), [0]
    )


def test_small_reductions_take_nothing() -> None:
    assert temporaries("aten.sum.default", meta([100])) == []
    assert temporaries("aten.sum.default", meta([])) == []
    assert temporaries("aten.sum.dim_IntList", meta([0, 4]), [0]) == []


def test_a_tensor_beyond_two_gigabytes_is_reduced_in_parts() -> None:
    whole = temporaries("aten.sum.default", meta([2**31]))
    assert whole == temporaries("aten.sum.default", meta([2**29])) * 4


def test_halves_beyond_two_gigabytes_meet_in_accumulators() -> None:
    assert temporaries("aten.sum.default", meta([2**31], torch.float16))[0] == 4
