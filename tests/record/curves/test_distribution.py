import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brim.record.curves.distribution import NAMED, Distribution


def spread_of(values):
    made = Distribution()
    for step, value in enumerate(values, 1):
        made.add(value, step, 1)
    return made


@given(st.lists(st.floats(1e-3, 1e6), min_size=1, max_size=60))
def test_the_median_is_right_to_a_fifth_of_a_percent(values):
    assert spread_of(values).median == pytest.approx(statistics.median_low(values), rel=0.0021)


def test_nothing_has_no_median():
    empty = Distribution()
    assert (empty.median, empty.least, empty.steps, empty.largest) == (None, None, 0, [])


def test_what_is_not_above_nought_is_passed_over():
    assert spread_of([0.0, -1.0, 1e308, 1e-308]).steps == 0


def test_the_largest_values_keep_their_steps():
    spread = spread_of([float(step * 7919 % 1009) + 1 for step in range(1, 1010)])
    assert [one.value for one in spread.largest] == [float(1009 - place) for place in range(NAMED)]
    assert all(one.step * 7919 % 1009 + 1 == one.value and one.steps == 1 for one in spread.largest)


def test_bars_count_steps_and_both_ends_belong_to_them():
    spread = Distribution()
    for value, step, steps in ((1.0, 10, 10), (3.0, 15, 5), (3.5, 16, 1)):
        spread.add(value, step, steps)
    assert spread.histogram([1.0, 2.0, 3.0]) == [10, 5] and spread.above(3.0) == 1
    assert (spread.steps, spread.values) == (16, 3)


def test_bins_are_few_however_many_values_there_are():
    assert len(spread_of([10 + step % 1000 / 1000 for step in range(20_000)])._bins) < 100
