"""Rings, by hand."""

import pytest

from brim.engine.distributed import buckets
from brim.hardware.links import Link
from brim.speed_up.collectives import (
    BUCKET_BYTES,
    all_gather_seconds,
    all_reduce_seconds,
    broadcast_seconds,
    buckets_of,
)

TEN_GB = Link("by hand", 10e9, 5e-6)


def test_a_ring_adds_up_100_mb_on_four_gpus_in_15_ms_and_six_hops() -> None:
    # Each sends 3 quarters of 100 MB to add up and 3 to hand round: 150 MB at 10 GB/s. And 2 * 3 hops of 5 us.
    assert all_reduce_seconds(100e6, 4, TEN_GB) == pytest.approx(15e-3 + 30e-6)


def test_gathering_is_half_of_that() -> None:
    assert all_gather_seconds(100e6, 4, TEN_GB) == pytest.approx(7.5e-3 + 15e-6)


def test_one_gpu_sends_nothing() -> None:
    assert all_reduce_seconds(100e6, 1, TEN_GB) == all_gather_seconds(100e6, 1, TEN_GB) == 0
    assert broadcast_seconds(100e6, 1, TEN_GB) == 0


def test_many_gpus_send_each_byte_twice_at_most() -> None:
    without_hops = Link("", 10e9, 0)
    times = [all_reduce_seconds(100e6, gpus, without_hops) for gpus in (2, 4, 8, 64)]
    assert times == sorted(times)
    assert times[0] == pytest.approx(10e-3)
    assert times[-1] < 20e-3


def test_buckets_are_filled_in_order_and_none_is_too_full_unless_one_gradient_is() -> None:
    mib = 1 << 20
    assert buckets_of([5 * mib, 3 * mib, 1, 100 * mib, 5]) == [8 * mib, 1, 100 * mib, 5]
    assert buckets_of([]) == []


def test_buckets_are_as_large_as_those_of_the_ranks() -> None:
    assert BUCKET_BYTES == buckets.BUCKET_BYTES
