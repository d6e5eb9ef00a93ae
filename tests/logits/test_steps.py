"""Which steps from the last layer to the loss are followed."""

import pytest
import torch

from brim.logits.steps import Recipe, step_of

HIDDEN, WEIGHT = torch.randn(2, 3, 4), torch.randn(5, 4)
RECIPE = Recipe(HIDDEN, WEIGHT, None, torch.bfloat16)


def after(func, *args, **kwargs):
    return step_of(func, RECIPE, args, kwargs)


def test_types_only_become_wider():
    assert after(torch.Tensor.float).dtype == torch.float32
    assert after(torch.Tensor.to, torch.float64).dtype == torch.float64
    assert after(torch.Tensor.to, "cpu", torch.bfloat16) is RECIPE
    for wanted in (torch.float16, torch.int64, "meta", torch.zeros(1)):
        assert after(torch.Tensor.to, wanted) is None


def test_views_keep_words_last():
    assert after(torch.Tensor.view, -1, 5).hidden.shape == (6, 4)
    assert after(torch.Tensor.reshape, (6, -1)).hidden.shape == (6, 4)
    assert after(torch.Tensor.view, 5, -1) is None
    assert after(torch.Tensor.view, 30) is None
    assert after(torch.Tensor.view, -1, 10) is None


@pytest.mark.parametrize(
    "index", [(..., slice(-1), slice(None)), (slice(None), slice(1, None)), slice(1), (slice(None),) * 3, ...]
)
def test_slices_of_tokens(index):
    torch.testing.assert_close(after(torch.Tensor.__getitem__, index).hidden @ WEIGHT.T, (HIDDEN @ WEIGHT.T)[index])


@pytest.mark.parametrize(
    "index", [(..., slice(3)), (slice(None),) * 2 + (slice(1),), 0, None, (None, ...), torch.tensor([0]), (..., 1)]
)
def test_other_indices_need_the_logits(index):
    assert after(torch.Tensor.__getitem__, index) is None


def test_factors_bounds_and_biases():
    capped = step_of(torch.tanh, after(torch.Tensor.div, 30.0), (), {})
    capped = step_of(torch.Tensor.mul, capped, (30.0,), {})
    assert (capped.softcap, capped.scale) == (30.0, pytest.approx(1.0))
    assert after(torch.Tensor.mul, 0.5).scale == 0.5
    assert after(torch.Tensor.mul, torch.ones(5)) is None
    assert after(torch.Tensor.mul, 0) is None
    assert after(torch.Tensor.add, torch.ones(1, 5)).bias.shape == (5,)
    assert after(torch.Tensor.add, torch.ones(3, 5)) is None
    assert after(torch.Tensor.add, 1.0) is None
    assert step_of(torch.Tensor.add, after(torch.Tensor.mul, 0.5), (torch.ones(5),), {}) is None


def test_what_nobody_thought_of_needs_the_logits():
    assert after(torch.Tensor.softmax, -1) is None
    assert after(torch.Tensor.add, torch.ones(5), alpha=2) is None


def test_tensors_of_inference_are_not_asked_whether_they_were_changed():
    with torch.inference_mode():
        hidden = torch.ones(2, 4)
    Recipe(hidden, WEIGHT, None, torch.float32).check_unchanged()
