import pytest

from brim.engine.shares.step_parts import StepParts, as_shares


def test_parts_add_up():
    one, other = StepParts(1.0, 2.0, 3.0, 4.0, 5.0), StepParts(compute=10.0, launch=0.5)
    assert one + other == StepParts(1.0, 2.0, 13.0, 4.0, 5.5)
    assert (one + other).seconds == one.seconds + other.seconds == 25.5


def test_shares_are_of_the_whole_step_and_add_up_to_it():
    shares = StepParts(data_wait=1.0, compute=2.0, sync=1.0).shares()
    assert shares == {
        "share/data_wait": 0.25, "share/copy": 0.0, "share/compute": 0.5, "share/sync": 0.25, "share/launch": 0.0,
    }  # fmt: skip
    assert sum(StepParts(1.0, 1.0, 1.0).shares().values()) == pytest.approx(1, abs=1e-3)


def test_of_no_time_there_are_no_shares():
    assert StepParts().shares() == {} and as_shares({"a": 0.0}) == {}
