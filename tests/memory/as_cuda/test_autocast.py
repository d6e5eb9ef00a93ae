"""Mixed precision decides as CUDA's lists decide, on fake CPU tensors."""

import pytest
import torch
from torch.nn import functional

from brim.hardware.cards import H200
from brim.memory.as_cuda.mode import as_cuda
from brim.memory.trace.trace import Recorder

BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32


def run(compute, *dtypes: torch.dtype, low: torch.dtype = BF16):
    """What an operator makes of square matrices of these types under autocast, and all operators that ran."""
    recorder = Recorder(H200, (2, 11))
    with as_cuda(H200, (2, 11), recorder), recorder:
        inputs = [torch.empty(8, 8, dtype=dtype) for dtype in dtypes]
        recorder.enter("forward")
        recorder.watching = True
        with torch.autocast("cuda", low):
            result = compute(*inputs)
        return result.dtype, [storage.operator for storage in recorder.finish().storages]


@pytest.mark.matrix(15)
@pytest.mark.parametrize(
    "compute",
    [
        lambda x: functional.linear(x, x),
        lambda x: x @ x,
        lambda x: torch.bmm(x[None], x[None]),
        lambda x: torch.addmm(x, x, x),
        lambda x: functional.conv1d(x[None], x[:, :, None]),
        lambda x: functional.conv2d(x[None, None], x[None, None, :3, :3]),
        lambda x: torch.einsum("ij,jk->ik", x, x),
        lambda x: functional.prelu(x, x[0]),
        lambda x: functional.scaled_dot_product_attention(x[None, None], x[None, None], x[None, None]),
    ],
    ids=["linear", "matmul", "bmm", "addmm", "conv1d", "conv2d", "einsum", "prelu", "attention"],
)
@pytest.mark.parametrize("low", [BF16, FP16])
@pytest.mark.parametrize("given", [FP32, BF16])
def test_products_are_computed_in_lower_precision(compute, given: torch.dtype, low: torch.dtype) -> None:
    assert run(compute, given, low=low)[0] == low


@pytest.mark.parametrize(
    "compute",
    [
        lambda x: functional.layer_norm(x, (8,)),
        lambda x: functional.group_norm(x[None], 2),
        lambda x: x.softmax(-1),
        lambda x: x.log_softmax(-1),
        lambda x: x.exp(),
        lambda x: x.log(),
        lambda x: x.pow(2),
        lambda x: x.sum(),
        lambda x: x.sum(0),
        lambda x: x.cumsum(0),
        lambda x: x.prod(),
        lambda x: x.norm(),
        lambda x: x.rsqrt(),
        lambda x: functional.softplus(x),
        lambda x: functional.mse_loss(x, x),
        lambda x: functional.cosine_similarity(x, x),
        lambda x: functional.cross_entropy(x, torch.zeros(8, dtype=torch.long)),
    ],
    ids=[
        "layer_norm", "group_norm", "softmax", "log_softmax", "exp", "log", "pow", "sum", "sum of a dim", "cumsum",
        "prod", "norm", "rsqrt", "softplus", "mse_loss", "cosine_similarity", "cross_entropy",
    ],
)  # fmt: skip
@pytest.mark.parametrize("given", [BF16, FP16, FP32])
def test_what_needs_range_is_computed_in_fp32(compute, given: torch.dtype) -> None:
    assert run(compute, given)[0] == FP32


@pytest.mark.parametrize(
    "compute",
    [
        lambda x: torch.cat([x, x]),
        lambda x: torch.stack([x, x]),
        lambda x: x + x,
        lambda x: x.relu(),
        lambda x: functional.gelu(x),
        lambda x: x.mean(),
        lambda x: functional.max_pool1d(x, 2),
        lambda x: functional.dropout(x, 0.1),
    ],
    ids=["cat", "stack", "add", "relu", "gelu", "mean", "max_pool", "dropout"],
)
@pytest.mark.parametrize("given", [BF16, FP32])
def test_everything_else_keeps_its_type(compute, given: torch.dtype) -> None:
    assert run(compute, given)[0] == given


@pytest.mark.parametrize(("types", "widest"), [((BF16, BF16), BF16), ((BF16, FP32), FP32), ((FP32, FP32), FP32)])
def test_some_take_the_widest_type_of_their_inputs(types: tuple[torch.dtype, ...], widest: torch.dtype) -> None:
    assert run(lambda x, y: torch.addcmul(x, y, y), *types)[0] == widest
    assert run(lambda x, y: torch.cat([x, y]), *types)[0] == widest  # by promotion, which autocast leaves alone


@pytest.mark.parametrize("compute", [lambda x: x.softmax(-1), lambda x: x.log_softmax(-1)])
def test_softmax_of_bf16_makes_a_copy_in_fp32(compute) -> None:
    assert any("_to_copy" in operator for operator in run(compute, BF16)[1])  # only fp16 has a kernel that spares it


@pytest.mark.parametrize(
    "compute", [lambda x: x.sum(), lambda x: x.sum(0), lambda x: x.norm(), lambda x: x.norm(2, -1)]
)
def test_sums_and_norms_of_bf16_make_no_copy_in_fp32(compute) -> None:
    dtype, operators = run(compute, BF16)
    assert dtype == FP32
    assert not any("_to_copy" in operator for operator in operators)


def test_a_dtype_that_the_user_names_is_kept() -> None:
    assert run(lambda x: x.softmax(-1, dtype=BF16), BF16)[0] == BF16
    assert run(lambda x: x.sum(0, dtype=torch.float64), BF16)[0] == torch.float64


def test_doubles_and_whole_numbers_are_left_alone() -> None:
    assert run(lambda x: x.exp(), torch.float64)[0] == torch.float64
    assert run(lambda x: x.sum(), torch.long)[0] == torch.long


def test_the_copy_of_a_weight_is_kept_for_its_next_use() -> None:
    def twice(x):
        weight = torch.nn.Parameter(torch.empty(8, 8))
        return functional.linear(functional.linear(x, weight), weight)

    operators = run(twice, BF16)[1]
    assert operators.count("aten._to_copy.default") == 1


def test_without_autocast_nothing_is_cast() -> None:
    recorder = Recorder(H200, (2, 11))
    with as_cuda(H200, (2, 11), recorder), recorder:
        x = torch.empty(8, 8, dtype=BF16)
        with torch.autocast("cuda", BF16, enabled=False):
            assert functional.layer_norm(x, (8,)).dtype == BF16
            assert x.exp().dtype == BF16
