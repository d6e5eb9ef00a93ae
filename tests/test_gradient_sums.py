"""Sums of gradients in 16 bits."""

import pytest
import torch
from torch import nn

from brim.gradient_sums import GradientSums


def passed(weight, parts, scale=1.0):
    """So many backward passes, each with a gradient of ``scale``."""
    sums = GradientSums([weight], parts)
    for part in range(parts):
        is_last = part == parts - 1
        if is_last:
            sums.give()
        (weight * scale).sum().backward()
        if not is_last:
            sums.take()
    return weight.grad


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_sum_of_many_terms_does_not_stop_growing(dtype):
    weight = nn.Parameter(torch.zeros(3, dtype=dtype))
    by_autograd = nn.Parameter(torch.zeros(3, dtype=dtype))
    for _ in range(4001):
        by_autograd.sum().backward()
    found = passed(weight, 4001)
    assert found.dtype == dtype and found[0].item() == pytest.approx(4001, rel=2**-7)
    assert by_autograd.grad[0].item() < 2100


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_longer_numbers_are_left_to_autograd(dtype):
    weight = nn.Parameter(torch.zeros(3, dtype=dtype))
    sums = GradientSums([weight], 5)
    weight.sum().backward()
    gradient = weight.grad
    sums.take()
    assert weight.grad is gradient and sums.sums == []


def test_two_terms_are_left_to_autograd_whose_sum_is_rounded_once_as_well():
    weight, twin = (nn.Parameter(torch.zeros(3, dtype=torch.bfloat16)) for _ in range(2))
    assert GradientSums([weight], 2)._parameters == []
    for _ in range(2):
        (twin * 0.3).sum().backward()
    assert torch.equal(passed(weight, 2, 0.3), twin.grad)


def test_a_parameter_that_only_some_passes_use_has_the_sum_of_those():
    weight = nn.Parameter(torch.zeros(2, dtype=torch.bfloat16))
    unused = nn.Parameter(torch.zeros(2, dtype=torch.bfloat16))
    sums = GradientSums([weight, unused], 4)
    for part in range(4):
        if part == 3:
            sums.give()
        if part in (1, 2):
            weight.sum().backward()
        if part < 3:
            sums.take()
    assert weight.grad.tolist() == [2.0, 2.0] and unused.grad is None


def test_sparse_gradients_are_left_to_autograd():
    table = nn.Embedding(4, 2, sparse=True, dtype=torch.bfloat16)
    sums = GradientSums(list(table.parameters()), 3)
    table(torch.tensor([1])).sum().backward()
    gradient = table.weight.grad
    sums.take()
    assert table.weight.grad is gradient and sums.sums == []
