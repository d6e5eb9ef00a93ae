import pytest
from hypothesis import given
from hypothesis import strategies as st

from brim.record.curves.curve import STRETCHES, Curve, Point


def points_of(values):
    return [Point(step, value, 1, float(step)) for step, value in enumerate(values)]


def told(curve):
    return [(point.step, point.value) for point in curve.points]


def test_a_short_curve_is_as_it_was_written():
    points = points_of([3.0, None, 1.0] * (2 * STRETCHES // 3))
    curve = Curve.of(points)
    assert curve.points == points and not curve.is_thinned()


@given(
    values=st.lists(st.none() | st.floats(-1e9, 1e9), min_size=1, max_size=400),
    stretches=st.integers(min_value=4, max_value=60),
)
def test_thinning_keeps_the_ends_the_extremes_a_gap_and_the_order_within_the_limit(values, stretches):
    points = points_of(values)
    kept = Curve.of(points, stretches).points
    numbers = [value for value in values if value is not None]
    kept_numbers = [point.value for point in kept if point.value is not None]
    assert len(kept) <= 3 * stretches + 2
    assert set(kept) <= set(points)
    assert [point.step for point in kept] == sorted({point.step for point in kept})
    assert (kept[0], kept[-1]) == (points[0], points[-1])
    assert (min(kept_numbers, default=None), max(kept_numbers, default=None)) == (
        min(numbers, default=None),
        max(numbers, default=None),
    )
    assert (None in values) == any(point.value is None for point in kept)


def test_every_single_spike_survives_thinning():
    spikes = {1_003: 9.0, 7_777: -4.0, 19_998: 5.0}
    kept = Curve.of(points_of([spikes.get(step, 1.0) for step in range(20_000)]))
    assert {point.step: point.value for point in kept.points if point.value != 1.0} == spikes
    assert kept.is_thinned()


def test_in_fewer_stretches_the_ends_and_the_extremes_stay():
    curve = Curve.of(points_of([99.0 if step == 7_777 else step % 7 for step in range(10_000)]))
    few = curve.points_in(20)
    assert len(few) <= 42 and (few[0].step, few[-1].step) == (0, 9_999) and max(p.value for p in few) == 99.0
    assert curve.points_in(STRETCHES) == curve.points and len(curve.points) > 400  # and nothing was joined for good
    assert Curve().points_in(5) == []


def test_memory_does_not_grow_with_the_run():
    curve = Curve.of(points_of([step % 7 for step in range(50_000)]))
    assert STRETCHES / 2 <= len(curve._stretches) <= STRETCHES
    assert len(curve.points) <= 2 * STRETCHES + 2


def test_the_trend_of_noise_around_a_line_is_the_line():
    course = Curve.of(points_of([step + (0.5 if step % 2 else -0.5) for step in range(3_000)])).trend(100)
    assert len(course) == 100
    assert all(abs(step - value) < 0.05 for step, value in course)


def test_the_trend_passes_over_gaps_and_short_curves_have_none():
    assert Curve.of(points_of([1.0, 2.0, 3.0])).trend(2) == []
    assert Curve.of(points_of([1.0, None, 1.0, None, 3.0, 3.0])).trend(2) == [(1.0, 1.0), (4.5, 3.0)]


def test_the_mean_over_all_stretches_is_the_mean_of_all_numbers():
    curve = Curve.of(points_of([float(step * step % 101) for step in range(10_000)]))
    ((step, value),) = curve.means(1)
    assert step == pytest.approx(4999.5)
    assert value == pytest.approx(sum(step * step % 101 for step in range(10_000)) / 10_000)


def test_what_is_done_once_more_replaces_what_was_there():
    curve = Curve.of(points_of([1.0] * 10))
    curve.add(Point(5, 2.0, 1, 0.0))
    assert told(curve) == [(step, 1.0) for step in range(5)] + [(5, 2.0)]
    curve.forget_from(0)
    assert not curve and curve.points == [] and curve.values == []


@given(length=st.integers(1, 3_000), back=st.integers(0, 3_000))
def test_after_going_back_nothing_of_what_came_after_is_left(length, back):
    curve = Curve.of(points_of([float(step) for step in range(length)]))
    curve.forget_from(back)
    assert all(point.step < back and point.value == point.step for point in curve.points)
    assert bool(curve) == (back > 0)
    assert not curve or curve.first.step == 0


def test_a_value_counts_for_the_steps_since_the_one_before():
    curve = Curve.of([Point(1, 90.0, 1, 0.0), Point(2, 80.0, 1, 0.0), Point(50, 5.0, 1, 0.0), Point(100, 6.0, 2, 0.0)])
    assert curve.spread.median == 6.0 and curve.spread.steps == 100
