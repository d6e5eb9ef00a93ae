"""Choice and temporaries of attention kernels, against records of an H200 (torch 2.11, cuDNN 9.19)."""

import pytest
import torch
from torch import Tensor

from brim.hardware.cards import H200
from brim.memory.kernels.attention import RULES, Attention, choose_attention_kernel, flash_splits
from brim.memory.kernels.scope import Call, Scope

BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
HOPPER = (9, 0)


def attention(dim: int, dtype: torch.dtype, length: int = 128, keys: int = 128, **more: object) -> Attention:
    heads = 2 if more.get("grouped") else 8
    key = (2, heads, keys, dim)
    return Attention((2, 8, length, dim), key, key, dtype, needs_gradient=True, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("call", "kernel"),
    [
        (attention(64, BF16), "cudnn"),
        (attention(256, FP16, causal=True), "cudnn"),
        (attention(160, BF16, mask=True, dropout=0.1), "cudnn"),
        (attention(80, BF16, grouped=True), "cudnn"),
        (attention(20, BF16), "flash"),
        (attention(20, BF16, causal=True, dropout=0.1), "flash"),
        (attention(20, FP16, mask=True), "math"),
        (attention(20, BF16, mask=True, grouped=True), "math"),
        (attention(20, FP32, causal=True, dropout=0.1), "efficient"),
        (attention(256, FP32, mask=True), "efficient"),
        (attention(64, FP32, grouped=True), "math"),
        (attention(64, torch.float64), "math"),
    ],
)
def test_choice_on_hopper(call: Attention, kernel: str) -> None:
    assert choose_attention_kernel(HOPPER, call) == kernel


@pytest.mark.parametrize(
    ("capability", "call", "kernel"),
    [
        ((8, 0), attention(64, BF16), "flash"),
        ((8, 0), attention(64, BF16, mask=True), "efficient"),
        ((8, 9), attention(224, FP16), "efficient"),
        ((8, 9), attention(256, FP16), "flash"),
        ((8, 9), attention(256, FP16, dropout=0.1), "efficient"),
        ((8, 0), attention(64, FP16, causal=True, keys=64), "efficient"),
        ((7, 5), attention(64, FP16), "efficient"),
        ((7, 0), attention(64, BF16), "math"),
        ((7, 5), attention(63, FP32), "efficient"),
        ((10, 0), attention(128, BF16), "cudnn"),
        ((10, 0), attention(256, BF16), "flash"),
        ((12, 0), attention(64, BF16), "flash"),
    ],
)
def test_choice_elsewhere(capability: tuple[int, int], call: Attention, kernel: str) -> None:
    assert choose_attention_kernel(capability, call) == kernel


def test_older_torch_prefers_flash_on_hopper() -> None:
    assert choose_attention_kernel(HOPPER, attention(64, BF16), torch_version=(2, 8)) == "flash"


def tensor(shape: tuple[int, ...], dtype: torch.dtype, layout: str = "bhtd") -> Tensor:
    batch, heads, length, dim = shape
    if layout == "bthd":
        return torch.empty(batch, length, heads, dim, dtype=dtype, device="meta").transpose(1, 2)
    if layout == "expanded":
        return torch.empty((), dtype=dtype, device="meta").expand(*shape)
    return torch.empty(*shape, dtype=dtype, device="meta")


def temporaries(operator: str, args: tuple[object, ...], outputs: tuple[Tensor | None, ...]) -> list[int]:
    scope = Scope()
    RULES[f"aten.{operator}.default"](Call(operator, args, {}, outputs, H200), scope)
    scope.close()
    return [step.size for step in scope.steps if step.size > 0]


@pytest.mark.parametrize(
    ("query", "heads", "keys", "gradient", "expected"),
    [
        ((2, 4, 49, 96), 4, 49, "expanded", [75_264, 152_352]),
        ((2, 1, 2048, 64), 1, 100, "expanded", [524_288, 1_065_216]),
        ((1, 12, 197, 128), 3, 197, "expanded", [605_184, 2_430_448]),
        ((4, 12, 197, 40), 3, 100, "expanded", [756_480, 2_319_040]),
        ((64, 12, 197, 64), 12, 197, "bthd", [39_337_216]),
        ((2, 16, 512, 64), 4, 512, "bthd", [8_454_400]),
    ],
)
def test_cudnn_backward(
    query: tuple[int, int, int, int], heads: int, keys: int, gradient: str, expected: list[int]
) -> None:
    source, key = tensor(query, BF16, "bthd"), tensor((query[0], heads, keys, query[3]), BF16, "bthd")
    args = (tensor(query, BF16, gradient), source, key, key, source)
    assert temporaries("_scaled_dot_product_cudnn_attention_backward", args, (source, key, key)) == expected


@pytest.mark.parametrize(
    ("query", "keys", "gradient", "expected"),
    [
        ((8, 2, 77, 20), 77, "expanded", [98_560, 98_560, 4928, 4928, 524_800]),
        ((16, 1, 512, 64), 512, "expanded", [2_097_152, 2_097_152, 32_768, 2_099_200]),
        ((4, 4, 77, 256), 77, "expanded", [1_261_568, 1_261_568, 4928, 4928, 2_098_176]),
        ((2, 2, 77, 160), 77, "expanded", [197_120, 197_120, 1232, 1232, 393_408]),
        ((8, 16, 2048, 160), 100, "expanded", [167_772_160, 167_772_160, 1_048_576, 1_048_576, 201_424_896]),
        ((4, 12, 512, 64), 512, "bthd", [6_291_456, 98_304, 98_304, 6_297_600]),
    ],
)
def test_efficient_backward(query: tuple[int, int, int, int], keys: int, gradient: str, expected: list[int]) -> None:
    source, key = tensor(query, FP32, "bthd"), tensor((query[0], query[1], keys, query[3]), FP32, "bthd")
    args = (tensor(query, FP32, gradient), source, key, key, None, source)
    operator = "_scaled_dot_product_efficient_attention_backward"
    assert temporaries(operator, args, (source, key, key, None)) == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ((4, 16, 16, 24), [49_152, 49_152, 32_768, 1_048_576]),
        ((64, 4, 49, 24), [602_112, 602_112, 131_072, 4_194_304]),
    ],
)
def test_flash_backward(query: tuple[int, int, int, int], expected: list[int]) -> None:
    source = tensor(query, BF16)
    args = (source, source, source, source, source)
    assert temporaries("_scaled_dot_product_flash_attention_backward", args, (source,) * 3) == expected


def test_forwards_take_next_to_nothing() -> None:
    query = tensor((64, 4, 49, 24), BF16)
    assert temporaries("_scaled_dot_product_cudnn_attention", (query, query, query), (query,)) == [256]
    assert temporaries("_scaled_dot_product_flash_attention", (query, query, query), (query,)) == []


def test_flash_splits_keys_only_for_few_rows() -> None:
    assert flash_splits(256, (64, 4, 49, 64), 49, 132) == 1
    assert flash_splits(1, (1, 1, 1, 64), 65536, 132) > 1
