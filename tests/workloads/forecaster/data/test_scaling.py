"""Scaling by the training steps alone."""

import numpy as np
import pytest

from brim.workloads.forecaster.data.scaling import Scaling
from brim.workloads.forecaster.data.series import Series


def a_series(values, name="a"):
    values = np.asarray(values, dtype=float).reshape(len(values), -1)
    return Series(name, np.arange(len(values)), values, np.zeros((len(values), 0)), np.zeros(0), np.zeros((0, 0)))


def test_only_training_steps_are_counted():
    scaling = Scaling.of([a_series([1, 2, 3, 1000, -1000])], [3])
    assert scaling.mean[0, 0] == 2
    assert scaling.spread[0, 0] == pytest.approx(np.std([1, 2, 3]))


def test_what_is_scaled_is_put_back_with_any_further_dimension():
    one = a_series(np.random.default_rng(0).normal(5, 3, (20, 2)))
    scaling = Scaling.of([one], [15])
    scaled = scaling.apply(one.values, "a")
    np.testing.assert_allclose(scaling.undo(scaled, "a"), one.values)
    np.testing.assert_allclose(scaling.undo(np.stack([scaled, scaled], -1), "a")[..., 1], one.values)


@pytest.mark.parametrize("value", [0.0, 7.0, 1e12, 0.1])
def test_a_constant_is_zero(value):
    one = a_series([value] * 30)
    assert np.abs(Scaling.of([one], [20]).apply(one.values, "a")).max() <= 1e-15 * value


def test_missing_values_do_not_count():
    assert Scaling.of([a_series([1, np.nan, 3])], [3]).mean[0, 0] == 2


def test_a_series_that_training_did_not_see_is_scaled_by_all_others():
    scaling = Scaling.of([a_series([1, 2, 3]), a_series([np.nan, np.nan, 9], "late")], [3, 2])
    assert scaling.of_series("late")[0][0] == 2
    assert scaling.of_series("new")[0][0] == 2


def test_nothing_to_learn_from_leaves_values_as_they_are():
    scaling = Scaling.of([a_series([np.nan, np.nan, 9])], [2])
    assert (scaling.mean[0, 0], scaling.spread[0, 0]) == (0, 1)


def test_it_comes_back_from_json():
    scaling = Scaling.of([a_series([1, 2, 4])], [3])
    again = Scaling.from_json(scaling.as_json())
    assert again.names == scaling.names and (again.mean == scaling.mean).all() and (again.whole == scaling.whole).all()
