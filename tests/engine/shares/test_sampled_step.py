"""Steps made up of marks, in milliseconds of one clock, whose parts are known."""

import pytest

from brim.engine.shares.sampled_step import Mark, SampledStep, Stretch, Wait, gap_at_start, on_one_clock, parts_of
from brim.engine.shares.step_parts import StepParts

MS = 1e-3


def mark(host, device=None):
    return Mark(host * MS, (host if device is None else device) * MS)


def step(begin, asked, fed, end, waits=(), copies=()):
    spans = tuple((start * MS, stop * MS) for start, stop in copies)
    return SampledStep(begin, asked * MS, fed, fed, end, tuple(waits), spans)


def parts(**milliseconds):
    return StepParts(**{name: value * MS for name, value in milliseconds.items()})


def equals(expected):
    return pytest.approx(vars(expected), abs=1e-9)


def test_an_idle_device_waits_for_data_while_the_host_does():
    found = parts_of(step(mark(0), 1, mark(6), mark(7, 10)), [4 * MS])
    assert vars(found) == equals(parts(data_wait=5, launch=1, compute=4))


def test_what_the_device_still_has_to_do_hides_the_waiting():
    found = parts_of(step(mark(0, 4), 1, mark(6), mark(7, 10)), [4 * MS])
    assert vars(found) == equals(parts(data_wait=2, compute=4))


def test_a_device_that_is_behind_is_not_idle_between_steps():
    found = parts_of(step(mark(0, 20), 1, mark(6, 21), mark(7, 31)), [10 * MS])
    assert vars(found) == equals(parts(compute=11))


def test_a_copy_that_is_waited_for_is_told_from_the_data():
    found = parts_of(step(mark(0), 0, mark(2, 6), mark(7, 10), copies=[(1, 6)]), [4 * MS])
    assert vars(found) == equals(parts(data_wait=1, copy=5, compute=4))


def test_a_copy_beside_kernels_is_hidden():
    found = parts_of(step(mark(0), 0, mark(0), mark(1, 10), copies=[(2, 8)]), [10 * MS])
    assert vars(found) == equals(parts(compute=10))


def test_idle_time_after_a_read_between_steps_is_its_fault_up_to_the_next_batch():
    read = Wait(mark(1, 5), mark(5), mark(5))
    found = parts_of(step(mark(0, 5), 8, mark(9), mark(10, 13)), [4 * MS])
    assert vars(found) == equals(parts(launch=3, data_wait=1, compute=4))
    found = parts_of(step(mark(0, 5), 8, mark(9), mark(10, 13), [read]), [4 * MS])
    assert vars(found) == equals(parts(sync=3, data_wait=1, compute=4))


def test_a_read_that_had_nothing_to_wait_for_costs_itself_alone():
    read = Wait(mark(1), mark(2), mark(2))
    found = parts_of(step(mark(0), 8, mark(9), mark(10, 13), [read]), [4 * MS])
    assert vars(found) == equals(parts(sync=1, launch=7, data_wait=1, compute=4))


def test_a_read_within_the_step_cuts_it_and_what_is_idle_after_it_is_its_fault():
    read = Wait(mark(1, 5), mark(5), mark(5))
    found = parts_of(step(mark(0), 0, mark(0), mark(9, 13), [read]), [5 * MS, 4 * MS])
    assert vars(found) == equals(parts(compute=9, sync=4))


def test_gaps_between_kernels_are_launching():
    found = parts_of(step(mark(0), 0, mark(0), mark(10)), [3 * MS])
    assert vars(found) == equals(parts(compute=3, launch=7))


def test_the_parts_are_all_of_the_time():
    read = Wait(mark(12, 14), mark(14), mark(14))
    whole = step(mark(0, 1), 2, mark(5, 7), mark(20, 24), [read], [(3, 7), (15, 17)])
    assert parts_of(whole, [6 * MS, 5 * MS]).seconds == pytest.approx(23 * MS)


def test_the_clocks_are_set_by_the_mark_that_the_device_was_least_behind_at():
    shifted = step(mark(100, 3), 101, mark(106, 6), mark(107, 10), copies=[(1, 2)])
    found = on_one_clock(shifted)
    assert found.begin.queued == pytest.approx(3 * MS) and found.fed.queued == pytest.approx(0)
    assert found.copies[0] == pytest.approx((101 * MS, 102 * MS))


@pytest.mark.parametrize(
    ("stretch", "was_held", "expected"),
    [
        (Stretch(mark(0, 5), mark(4, 9)), False, True),  # the host had launched all before the device began
        (Stretch(mark(0, 2), mark(4, 9)), False, False),
        (Stretch(mark(0, 2), mark(4, 9)), True, True),  # held, and still behind at the end
        (Stretch(mark(0, 2), mark(4, 4)), True, False),
    ],
)
def test_a_stretch_has_no_gaps_where_the_host_was_ahead(stretch, was_held, expected):
    assert stretch.has_no_gaps(was_held) is expected


def test_a_gap_is_known_by_how_long_so_much_work_took_the_host_before():
    """A kernel after some Python, a read, a pause and the same kernel again: next to nothing is seen of a pace."""
    first = Stretch(mark(0.483), mark(0.657, 2.113))
    after = Stretch(mark(2.155), mark(5.572, 6.773))
    assert gap_at_start(after, 1.52 * MS, first, 1.515 * MS) == pytest.approx(3.1 * MS, abs=0.01 * MS)
