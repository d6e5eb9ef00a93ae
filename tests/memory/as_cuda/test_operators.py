"""Operators that keep other things on CUDA than on the CPU."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from brim.hardware.cards import H200
from brim.memory.as_cuda.mode import as_cuda
from brim.memory.trace.trace import DEATH, Recorder

BF16, FP32 = torch.bfloat16, torch.float32


def record(compute, *shape: int, dtype: torch.dtype = FP32):
    """The result, the storages that it made, and the bytes of those that live after it."""
    recorder = Recorder(H200, (2, 11))
    with as_cuda(H200, (2, 11), recorder), recorder:
        x = torch.empty(*shape, dtype=dtype, requires_grad=True)
        recorder.enter("forward")
        recorder.watching = True
        result = compute(x)
        trace = recorder.finish()
    alive = {number: size for number, size in trace.events if size != DEATH}
    for number, size in trace.events:
        if size == DEATH:
            alive.pop(number, None)
    return result, trace, sorted(alive.values())


@pytest.mark.parametrize("dtype", [FP32, BF16])
def test_a_dropout_mask_takes_one_byte_an_element(dtype: torch.dtype) -> None:
    _, _, alive = record(lambda x: functional.dropout(x, 0.3), 100, 10, dtype=dtype)
    assert alive == [1000, 1000 * dtype.itemsize]


@pytest.mark.parametrize(
    "compute",
    [
        lambda x: functional.dropout(x, 0.0),
        lambda x: functional.dropout(x, 0.5, training=False),
        lambda x: nn.Dropout(0.5).eval()(x),
    ],
)
def test_a_dropout_that_drops_nothing_takes_nothing(compute) -> None:
    assert record(compute, 100, 10)[2] == []


def test_softmax_of_fp16_to_fp32_is_one_kernel() -> None:
    _, trace, alive = record(lambda x: x.softmax(-1, dtype=FP32), 100, 10, dtype=torch.float16)
    assert alive == [4000]
    assert len(trace.storages) == 1


@pytest.mark.parametrize("compute", [lambda x: x.softmax(-1), lambda x: x.log_softmax(-1)])
def test_softmax_keeps_its_output(compute) -> None:
    assert record(compute, 100, 10)[2] == [4000]


def test_rms_norm_keeps_its_input_and_a_number_a_row() -> None:
    _, _, alive = record(lambda x: functional.rms_norm(x, (10,), torch.ones(10)), 100, 10, dtype=BF16)
    assert sorted(alive) == [40, 400, 2000]  # the weight, one fp32 number a row, the output


def test_rms_norm_over_two_dimensions() -> None:
    assert record(lambda x: functional.rms_norm(x, (5, 2)), 100, 5, 2)[2] == [400, 4000]


@pytest.mark.parametrize("shape", [(8, 4, 6, 6), (8, 4, 6), (8, 4)])
@pytest.mark.parametrize("dtype", [FP32, BF16])
def test_batch_norm_of_images_in_fp32_is_cudnns(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    norm = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d}[len(shape)]
    _, trace, _ = record(lambda x: norm(4)(x), *shape, dtype=dtype)
    by_cudnn = any("cudnn_batch_norm" in storage.operator for storage in trace.storages)
    assert by_cudnn == (dtype == FP32 and len(shape) > 2)


@pytest.mark.parametrize("settings", [{"affine": False}, {"track_running_stats": False}])
def test_batch_norm_without_weights_or_statistics_is_torchs_own(settings: dict) -> None:
    _, trace, _ = record(lambda x: nn.BatchNorm2d(4, **settings)(x), 8, 4, 6, 6)
    assert not any("cudnn" in storage.operator for storage in trace.storages)


@pytest.mark.parametrize("dtype", [FP32, BF16])
@pytest.mark.parametrize(
    "compute",
    [
        lambda x: functional.dropout(x, 0.3),
        lambda x: x.softmax(-1),
        lambda x: x.softmax(-1, dtype=FP32),
        lambda x: x.log_softmax(-1, dtype=FP32),
        lambda x: functional.rms_norm(x, (6,)),
        lambda x: functional.rms_norm(x, (6,), torch.ones(6, dtype=x.dtype, requires_grad=True)),
        lambda x: nn.BatchNorm2d(4)(x),
        lambda x: nn.BatchNorm2d(4, affine=False)(x),
    ],
    ids=["dropout", "softmax", "softmax to fp32", "log_softmax", "rms", "rms weight", "batch norm", "bare batch norm"],
)
def test_gradients_have_the_shape_and_type_of_the_input(compute, dtype: torch.dtype) -> None:
    def gradient(x: torch.Tensor) -> torch.Tensor | None:
        compute(x).float().sum().backward()
        return x.grad

    made, _, _ = record(gradient, 2, 4, 6, 6, dtype=dtype)
    assert (made.shape, made.dtype) == ((2, 4, 6, 6), dtype)


def test_batch_norm_of_cudnn_keeps_a_copy_of_a_view_in_pieces() -> None:
    """Transformers of series (PatchTST) normalise so: in fp32 a layer keeps its input twice."""

    def kept(*shape: int, dtype: torch.dtype) -> int:
        def normed(x: torch.Tensor) -> torch.Tensor:
            return nn.BatchNorm1d(32)(x if shape[1] == 32 else x.transpose(1, 2))

        return sum(record(normed, *shape, dtype=dtype)[2])

    numbers = 8 * 16 * 32  # of the input, which a view of it shows once
    assert kept(8, 16, 32, dtype=FP32) - kept(8, 32, 16, dtype=FP32) == 2 * numbers * 4
    assert kept(8, 16, 32, dtype=BF16) - kept(8, 32, 16, dtype=BF16) == numbers * 2  # torch's own kernel reads it so
