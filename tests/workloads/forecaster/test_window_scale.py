"""Level and spread of a window: taken out, and put back."""

import pytest
import torch

from brim.workloads.forecaster.window_scale import WindowScale, put_back

PAST = torch.randn(5, 12, 3).cumsum(1)


@pytest.mark.parametrize("subtract_last", [True, False])
@pytest.mark.parametrize("reversible", [True, False])
def test_a_series_that_is_moved_and_stretched_is_seen_as_before(subtract_last, reversible):
    scale = WindowScale(4, subtract_last, reversible)
    seen, level, spread = scale(PAST)
    factor = 7.0 if reversible else 1.0
    shift = 100.0 if reversible or subtract_last else 0.0
    again, level_2, spread_2 = scale(PAST * factor + shift)
    assert torch.allclose(seen, again, atol=1e-4)
    said = torch.randn(5, 4, 3, 1)
    one, two = put_back(said, level, spread), put_back(said, level_2, spread_2)
    assert torch.allclose(one * factor + shift, two, atol=1e-3)


def test_nothing_said_is_the_last_value_or_the_mean():
    nothing = torch.zeros(5, 4, 3, 1)
    _, level, spread = WindowScale(4, True, False)(PAST)
    assert torch.allclose(put_back(nothing, level, spread)[:, 2, :, 0], PAST[:, -1])
    _, level, spread = WindowScale(4, False, True)(PAST)
    assert torch.allclose(put_back(nothing, level, spread)[:, 2, :, 0], PAST.mean(1))


def test_with_both_the_level_is_learned_for_each_step():
    scale = WindowScale(4)
    _, level, _ = scale(PAST)
    assert torch.allclose(level, (PAST[:, -1:] + PAST.mean(1, keepdim=True)).expand(-1, 4, -1) / 2)
    level.sum().backward()
    assert scale.towards_mean.grad.shape == (4,)


@pytest.mark.parametrize("value", [0.0, 3.0, 1e6])
def test_a_constant_window_is_finite(value):
    seen, level, spread = WindowScale(4)(torch.full((2, 12, 1), value))
    assert seen.isfinite().all()
    assert torch.allclose(put_back(torch.zeros(2, 4, 1, 1), level, spread)[..., 0], torch.full((2, 4, 1), value))
