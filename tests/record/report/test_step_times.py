import pytest

from brim.record.curves.curve import Curve, Point
from brim.record.report.step_times import step_times


def curve(values, every=1):
    return Curve.of(Point(every * place, value, 1, 0.0) for place, value in enumerate(values, 1))


def test_every_step_is_in_a_bar_or_beyond():
    values = [10 + place % 10 / 10 for place in range(1000)] + [95.0, 80.0]
    (times,) = step_times([curve(values)])
    assert sum(times["counts"]) + times["beyond"] == times["steps"] == 1002
    assert times["beyond"] == 2 and times["median"] == pytest.approx(10.45, rel=0.01)
    assert times["low"] <= 9.5 and 10.9 <= times["high"] <= 20


def test_outliers_are_named_by_their_steps_the_slowest_first():
    (times,) = step_times([curve([900.0] + [10.0] * 500 + [25.0] + [10.0] * 300)])
    assert times["outliers"] == [{"first": 1, "last": 1, "ms": 900.0}, {"first": 502, "last": 502, "ms": 25.0}]
    assert (times["slow_limit"], times["slow_steps"], times["window"]) == (20.0, 2, 1)


def test_a_number_of_a_window_stands_for_the_steps_of_the_window():
    (times,) = step_times([curve([10.0] * 50 + [50.0] + [10.0] * 49, every=20)])
    assert times["outliers"] == [{"first": 1001, "last": 1020, "ms": 50.0}]
    assert (times["steps"], times["slow_steps"], times["window"]) == (2000, 20, 20)


def test_no_step_far_off_the_others_is_an_outlier_of_none():
    (times,) = step_times([curve([10.0, 10.5, 9.8] * 100)])
    assert times["outliers"] == [] and times["slow_steps"] == 0


def test_two_runs_share_one_range():
    a, none, b = step_times([curve([10.0] * 100), None, curve([20.0] * 100)])
    assert none is None and (a["low"], a["high"]) == (b["low"], b["high"])
    assert a["low"] <= 10.0 and b["high"] >= 20.0 and sum(a["counts"]) == sum(b["counts"]) == 100


@pytest.mark.parametrize("values", [[5.0], [5.0, 5.0], [1e-9, 1e9], [0.0, 5.0], [None, 5.0]])
def test_few_and_odd_values_make_a_histogram(values):
    (times,) = step_times([curve(values)])
    assert sum(times["counts"]) + times["beyond"] == times["steps"] > 0 and times["high"] > times["low"]


def test_a_run_whose_step_times_are_no_numbers_has_no_histogram():
    assert step_times([curve([None, None]), curve([0.0]), None]) == [None, None, None]
