import pytest
from helpers.clock import Clock

from brim.engine.shares.host_shares import HostShares


def steps(shares, clock, count, wait, compute, between=0.0, callback=None):
    for _ in range(count):
        shares.asks_for_batch()
        clock.sleep(wait)
        assert shares.got_batch() == pytest.approx(wait)
        if callback is not None:
            clock.sleep(callback)
            shares.calls_step()
        clock.sleep(compute)
        shares.ends_step()
        clock.sleep(between)


def test_waiting_computing_and_the_rest_add_up_to_the_time_of_the_steps():
    clock = Clock()
    shares = HostShares(computes_here=True, clock=clock.perf_counter)
    steps(shares, clock, 5, wait=0.2, compute=0.5, between=0.2, callback=0.1)
    assert shares.take(5.0) == {"share/data_wait": 0.2, "share/compute": 0.5, "share/rest": 0.3}


def test_every_line_has_its_own_steps():
    clock = Clock()
    shares = HostShares(computes_here=True, clock=clock.perf_counter)
    steps(shares, clock, 2, wait=1.0, compute=1.0)
    shares.take(4.0)
    steps(shares, clock, 2, wait=0.0, compute=1.0)
    assert shares.take(2.0) == {"share/data_wait": 0.0, "share/compute": 1.0, "share/rest": 0.0}


def test_steps_that_are_made_once_more_are_forgotten():
    clock = Clock()
    shares = HostShares(computes_here=True, clock=clock.perf_counter)
    steps(shares, clock, 2, wait=1.0, compute=1.0)
    shares.forget()
    steps(shares, clock, 1, wait=0.0, compute=1.0)
    assert shares.take(1.0)["share/data_wait"] == 0.0


def test_where_the_device_goes_on_by_itself_only_waiting_is_told_from_the_rest():
    clock = Clock()
    shares = HostShares(computes_here=False, clock=clock.perf_counter)
    steps(shares, clock, 4, wait=0.25, compute=0.1, between=0.65)
    assert shares.take(4.0) == {"share/data_wait": 0.25, "share/rest": 0.75}


def test_no_time_has_no_shares():
    assert HostShares(computes_here=True, clock=Clock().perf_counter).take(0.0) == {}
