import pytest

from brim.engine.shares.busy_times import BusyTimes
from brim.engine.shares.sampled_step import Mark, SampledStep

MS = 1e-3


def step(host, device, starts_at=0.0, was_held=False):
    """One stretch that the host launches in so many milliseconds, and the device computes from then until then."""
    start = Mark(0.0, starts_at * MS)
    return SampledStep(Mark(0.0, 0.0), 0.0, start, start, Mark(host * MS, device * MS), was_held=was_held)


def test_a_step_that_was_held_back_tells_of_those_that_were_not():
    known = BusyTimes()
    assert known.of(step(5, 5.01)) is None
    known.learn(step(5, 8, starts_at=6, was_held=True))
    assert known.of(step(5, 5.01)) == [pytest.approx(2 * MS)]


def test_a_step_that_is_launched_before_the_device_comes_to_it_needs_nobody_else():
    assert BusyTimes().of(step(1, 7, starts_at=2)) == [pytest.approx(5 * MS)]


def test_what_had_gaps_all_the_same_is_taken_until_something_better_is_there():
    known = BusyTimes()
    known.learn(step(5, 5.01, starts_at=1, was_held=True))
    assert known.of(step(5, 5.01)) == [pytest.approx(4.01 * MS)]
    known.learn(step(5, 8, starts_at=6, was_held=True))
    known.learn(step(5, 5.01, starts_at=1, was_held=True))
    assert known.of(step(5, 5.01)) == [pytest.approx(2 * MS)]


def test_a_step_that_takes_the_host_much_longer_is_another():
    known = BusyTimes()
    known.learn(step(5, 8, starts_at=6, was_held=True))
    assert known.of(step(50, 50.01)) is None
    known.learn(step(50, 70, starts_at=60, was_held=True))
    assert known.of(step(50, 50.01)) == [pytest.approx(10 * MS)]
