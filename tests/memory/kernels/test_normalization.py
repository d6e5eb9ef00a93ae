"""Temporaries of normalisations, against records of an H200 (torch 2.11, cuDNN 9.19)."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from brim.hardware.cards import H200
from brim.memory.kernels.normalization import RULES
from brim.memory.kernels.scope import Call, Scope

BF16 = torch.bfloat16


def meta(shape: Sequence[int], dtype: torch.dtype = torch.float32, layout: str = "") -> Tensor:
    if layout == "expanded":
        return torch.empty((), dtype=dtype, device="meta").expand(*shape)
    tensor = torch.empty(list(shape), dtype=dtype, device="meta")
    return tensor.to(memory_format=torch.channels_last) if layout == "channels_last" else tensor


def temporaries(operator: str, args: tuple[object, ...], outputs: tuple[Tensor | None, ...]) -> list[int]:
    scope = Scope()
    RULES[operator](Call(operator, args, {}, outputs, H200), scope)
    scope.close()
    taken = {step.temporary: step.size for step in scope.steps if step.temporary is not None and step.size >= 0}
    given = [step.temporary for step in scope.steps if step.size == -1]
    assert sorted(given, key=str) == sorted(taken, key=str)
    return list(taken.values())


@pytest.mark.parametrize(
    ("rows", "columns", "dtype", "layout", "expected"),
    [
        (2048, 96, torch.float32, "expanded", [786_432]),
        (512, 4096, BF16, "", []),
        (65536, 1024, BF16, "", []),
        (131072, 256, BF16, "", [512, 512, 2_097_152, 2_097_152, 8_388_608, 8, 8_388_608, 8]),
        (131072, 768, BF16, "", [1536, 1536, 2_096_640, 2_096_640, 8_650_752, 24, 8_650_752, 24]),
        (150528, 96, torch.float32, "", [384, 384, 1_806_336, 1_806_336, 909_312, 8, 909_312, 8]),
    ],
)
def test_layer_norm_backward(rows: int, columns: int, dtype: torch.dtype, layout: str, expected: list[int]) -> None:
    source, weight, statistic = meta([rows, columns], dtype), meta([columns], dtype), meta([rows, 1])
    args = (meta([rows, columns], dtype, layout), source, [columns], statistic, statistic, weight, weight, [True] * 3)
    assert temporaries("aten.native_layer_norm_backward.default", args, (source, weight, weight)) == expected


def test_rms_norm_backward() -> None:
    source, weight = meta([131072, 1000]), meta([1000])
    args = (meta([131072, 1000], layout="expanded"), source, [1000], meta([131072, 1]), weight, [True, True])
    expected = [4000, 524_288_000, 4_096_000, 8_192_000, 32]
    assert temporaries("aten._fused_rms_norm_backward.default", args, (source, weight)) == expected


def test_layer_norm_copies_what_is_not_contiguous() -> None:
    source = meta([197, 8, 768]).transpose(0, 1)
    args = (source, [768], meta([768]), meta([768]), 1e-6)
    outputs = (meta([8, 197, 768]), meta([8, 197, 1]), meta([8, 197, 1]))
    assert temporaries("aten.native_layer_norm.default", args, outputs) == [4_841_472]


@pytest.mark.parametrize(
    ("shape", "dtype", "layout", "forward", "backward"),
    [
        ([32768, 96], torch.float32, "", [196_608, 12], [384, 384, 98_304, 12]),
        ([2048, 4096], BF16, "", [524_288, 512], [16_384, 16_384, 262_144, 512]),
        ([64, 2048, 7, 7], BF16, "channels_last", [425_984, 256], [8192, 8192, 212_992, 256]),
        ([16, 128, 56, 14], BF16, "", [], []),
        ([64, 32], torch.float32, "", [], [128, 128]),
    ],
)
def test_batch_norm(shape: list[int], dtype: torch.dtype, layout: str, forward: list[int], backward: list[int]) -> None:
    source, channel = meta(shape, dtype, layout), meta([shape[1]])
    args = (source, channel, channel, channel, channel, True, 0.1, 1e-5)
    assert temporaries("aten.native_batch_norm.default", args, (source, channel, channel)) == forward
    back = (source, source, channel, channel, channel, channel, channel, True, 1e-5, [True] * 3)
    assert temporaries("aten.native_batch_norm_backward.default", back, (source, channel, channel)) == backward


def test_batch_norm_in_evaluation_takes_nothing() -> None:
    source, channel = meta([32768, 96]), meta([96])
    args = (source, channel, channel, channel, channel, False, 0.1, 1e-5)
    assert temporaries("aten.native_batch_norm.default", args, (source, None, None)) == []


@pytest.mark.parametrize(
    ("shape", "layout", "forward", "backward"),
    [
        ([64, 128, 14, 28], "channels_last", [405_624], [269_352]),
        ([8, 2048, 7, 7], "channels_last", [116_784], [83_104]),
        ([8, 64, 112, 112], "channels_last", [810_164], [536_612]),
        ([1, 16, 8, 8], "channels_last", [1592], [1572]),
        ([64, 8, 8, 14], "", [], []),
    ],
)
def test_cudnn_batch_norm(shape: list[int], layout: str, forward: list[int], backward: list[int]) -> None:
    source, channel = meta(shape, layout=layout), meta([shape[1]])
    args = (source, channel, channel, channel, channel, True, 0.1, 1e-5)
    assert temporaries("aten.cudnn_batch_norm.default", args, (source, channel, channel, None)) == forward
    back = (source, source, channel, channel, channel, channel, channel, 1e-5, None)
    assert temporaries("aten.cudnn_batch_norm_backward.default", back, (source, channel, channel)) == backward


def test_group_norm() -> None:
    source, weight, statistic = meta([64, 128, 28, 28], BF16), meta([128], BF16), meta([64, 4], BF16)
    args = (source, weight, weight, 64, 128, 784, 4, 1e-5)
    assert temporaries("aten.native_group_norm.default", args, (source, statistic, statistic)) == [32_768, 32_768]
    back = (source, source, statistic, statistic, weight, 64, 128, 784, 4, [True] * 3)
    expected = [32_768, 32_768, 1024, 1024, 32_768]
    assert temporaries("aten.native_group_norm_backward.default", back, (source, weight, weight)) == expected


def test_softmax_family() -> None:
    plain, expanded = meta([512, 384]), meta([512, 384], layout="expanded")
    softmax, log_softmax = "aten._softmax_backward_data.default", "aten._log_softmax_backward_data.default"
    assert temporaries(softmax, (plain, plain, -1, torch.float32), (plain,)) == [786_432]
    assert temporaries(log_softmax, (plain, plain, -1, torch.float32), (plain,)) == []
    assert temporaries(log_softmax, (expanded, plain, -1, torch.float32), (plain,)) == [786_432]
    scores = meta([16, 4, 197, 197])
    assert temporaries("aten._safe_softmax.default", (scores, -1), (scores,)) == [2_483_776, 12_608, 4]


def test_a_gradient_in_pieces_is_copied_for_cudnn() -> None:
    """As behind ``norm(x.transpose(1, 2)).transpose(1, 2)``, which normalises the channels of sequences."""
    source, channel = meta([16, 128, 64]), meta([128])
    back = (source, meta([16, 64, 128]).transpose(1, 2), channel, channel, channel, channel, channel, 1e-5, None)
    assert temporaries("aten.cudnn_batch_norm_backward.default", back, (source, channel, channel)) == [source.nbytes]
