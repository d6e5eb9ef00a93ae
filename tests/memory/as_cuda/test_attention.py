"""Attention takes the kernel that the card would take."""

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from brim.hardware.cards import H200, find_card
from brim.memory.as_cuda.mode import as_cuda
from brim.memory.trace.trace import DEATH, Recorder

BF16, FP32 = torch.bfloat16, torch.float32


def operators(card=H200, dtype=BF16, head: int = 64, mask=None, queries: int = 32, groups: int = 1, **settings):
    """Which operators run forward and backward, and whether the result is as large as it should be."""
    recorder = Recorder(card, (2, 11))
    with as_cuda(card, (2, 11), recorder), recorder:
        query = torch.empty(2, 4, queries, head, dtype=dtype, requires_grad=True)
        key, value = (torch.empty(2, 4 // groups, 40, head, dtype=dtype, requires_grad=True) for _ in range(2))
        recorder.enter("forward")
        recorder.watching = True
        made = None if mask is None else mask(queries, 40)
        result = scaled_dot_product_attention(query, key, value, made, **settings)
        assert result.shape == query.shape
        assert result.dtype == dtype
        result.float().sum().backward()
        assert all(tensor.grad.shape == tensor.shape for tensor in (query, key, value))
        return {
            storage.operator.removeprefix("aten.").removesuffix(".default") for storage in recorder.finish().storages
        }


def kernels(**settings) -> set[str]:
    names = {"flash": "flash_attention", "cudnn": "cudnn_attention", "efficient": "efficient_attention", "math": "bmm"}
    ran = operators(**settings)
    return {short for short, name in names.items() if any(name in operator for operator in ran)}


def test_fp32_is_efficient() -> None:
    assert kernels(dtype=FP32) == {"efficient"}


@pytest.mark.parametrize("card", ["A100 80GB", "RTX 4090"])
def test_bf16_is_flash(card: str) -> None:
    assert kernels(card=find_card(card)) == {"flash"}


@pytest.mark.parametrize(
    "mask", [lambda q, k: torch.ones(q, k, dtype=torch.bool), lambda q, k: torch.zeros(q, k).bfloat16()]
)
def test_a_mask_is_not_for_flash(mask) -> None:
    assert "flash" not in kernels(mask=mask, card=find_card("A100 80GB"))


@pytest.mark.parametrize("head", [20, 33, 64, 96])
@pytest.mark.parametrize("dtype", [BF16, FP32])
def test_heads_of_any_width_train(head: int, dtype: torch.dtype) -> None:
    assert kernels(head=head, dtype=dtype)


@pytest.mark.parametrize("settings", [{"is_causal": True}, {"dropout_p": 0.1}, {"scale": 0.5}])
@pytest.mark.parametrize("dtype", [BF16, FP32])
def test_settings_train(settings: dict, dtype: torch.dtype) -> None:
    assert kernels(dtype=dtype, queries=40, **settings)


def test_grouped_queries_train() -> None:
    assert kernels(groups=2, enable_gqa=True)


@pytest.mark.parametrize("dtype", [BF16, FP32])
def test_a_mask_of_booleans_becomes_numbers_in_the_type_of_the_query(dtype: torch.dtype) -> None:
    ran = operators(dtype=dtype, mask=lambda queries, keys: torch.ones(queries, keys, dtype=torch.bool))
    assert {"where.ScalarSelf", "where.self"} & ran
    assert "_to_copy" not in ran - operators(dtype=dtype)  # at once, not by way of fp32


def test_a_mask_of_numbers_is_taken_as_it_is() -> None:
    ran = operators(mask=lambda queries, keys: torch.zeros(queries, keys, dtype=BF16))
    assert not any(operator.startswith("where") for operator in ran)


def test_every_layer_keeps_its_own_numbers_of_one_mask() -> None:
    recorder = Recorder(H200, (2, 11))
    with as_cuda(H200, (2, 11), recorder), recorder:
        query = torch.empty(2, 4, 64, 64, dtype=BF16, requires_grad=True)
        mask = torch.ones(2, 1, 64, 64, dtype=torch.bool)
        recorder.watching = True
        first = scaled_dot_product_attention(query, query, query, mask)
        second = scaled_dot_product_attention(first, first, first, mask)
        trace = recorder.finish()
    assert second.shape == query.shape
    numbers = [number for number, storage in enumerate(trace.storages) if storage.size == 2 * 64 * 64 * 2]
    dead = {number for number, size in trace.events if size == DEATH}
    assert len(numbers) == 2
    assert not dead & set(numbers)
