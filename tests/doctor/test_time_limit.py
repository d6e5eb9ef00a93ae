import pytest
from helpers.clock import Clock

from brim.doctor import time_limit
from brim.doctor.time_limit import TimeLimit


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(time_limit, "time", clock)
    return clock


def test_runs_that_would_end_too_late_are_not_begun(clock):
    limit = TimeLimit(60.0)
    for seconds in (8.0, 12.0):
        with limit.one_run():
            clock.sleep(seconds)
    assert limit.has_time_for(4) and not limit.has_time_for(5)
    clock.sleep(1.0)
    assert limit.has_time_for(3) and not limit.has_time_for(4)


def test_a_run_that_failed_says_nothing_of_others(clock):
    limit = TimeLimit(60.0)
    with pytest.raises(ValueError, match="broken"), limit.one_run():
        clock.sleep(50.0)
        raise ValueError("broken")
    assert limit.has_time_for(100)


def test_nothing_fits_when_time_is_up(clock):
    limit = TimeLimit(60.0)
    clock.sleep(61.0)
    assert not limit.has_time_for(1)
