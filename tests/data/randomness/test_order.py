import copy

import torch
from hypothesis import given
from hypothesis import strategies as st

from brim.data.randomness import order as order_module
from brim.data.randomness.order import (
    GOLDEN,
    EpochOrders,
    batch_bounds,
    batch_count,
    epoch_permutation,
    even_bounds,
    mix64,
    rank_bounds,
    rows_of,
    stream_key,
)

sizes = st.integers(0, 300)
batch_sizes = st.integers(1, 60)


def covered(bounds):
    return [position for first, stop in bounds for position in range(first, stop)]


@given(sizes, batch_sizes)
def test_batches_cover_every_position_once_and_only_the_last_is_shorter(samples, batch_size):
    bounds = list(batch_bounds(samples, batch_size))
    assert covered(bounds) == list(range(samples))
    assert all(stop - first == batch_size for first, stop in bounds[:-1])
    assert all(0 < stop - first <= batch_size for first, stop in bounds[-1:])


@given(sizes, batch_sizes)
def test_drop_last_leaves_out_the_shorter_batch_and_nothing_else(samples, batch_size):
    whole = [(first, stop) for first, stop in batch_bounds(samples, batch_size) if stop - first == batch_size]
    assert list(batch_bounds(samples, batch_size, drop_last=True)) == whole


@given(sizes, batch_sizes, st.booleans(), st.integers(0, 300))
def test_batches_from_a_later_position_are_the_tail_of_the_epoch(samples, batch_size, drop_last, batches_done):
    epoch = list(batch_bounds(samples, batch_size, drop_last=drop_last))
    tail = list(batch_bounds(samples, batch_size, batches_done * batch_size, drop_last))
    assert tail == epoch[batches_done:]


@given(sizes, batch_sizes, st.integers(0, 300))
def test_batches_can_start_between_two_batches(samples, batch_size, start):
    assert covered(batch_bounds(samples, batch_size, start)) == list(range(start, samples))


@given(sizes, batch_sizes, st.booleans())
def test_the_number_of_batches_is_how_many_bounds_there_are(samples, batch_size, drop_last):
    assert batch_count(samples, batch_size, drop_last) == len(list(batch_bounds(samples, batch_size, 0, drop_last)))


@given(st.integers(0, 1000), sizes, st.integers(1, 17))
def test_ranks_partition_a_batch_in_order_and_evenly(start, length, world):
    shares = [rank_bounds(start, start + length, rank, world) for rank in range(world)]
    assert covered(shares) == list(range(start, start + length))
    lengths = [stop - first for first, stop in shares]
    assert max(lengths) - min(lengths) <= 1


@given(st.integers(1, 300), st.integers(1, 400))
def test_micro_batches_partition_a_rank_batch_and_none_is_larger_than_asked(length, micro_batch):
    bounds = even_bounds(length, micro_batch)
    assert covered(bounds) == list(range(length))
    assert all(0 < stop - first <= micro_batch for first, stop in bounds)
    assert len(bounds) == -(-length // micro_batch)
    assert max(stop - first for first, stop in bounds) - min(stop - first for first, stop in bounds) <= 1


@given(st.lists(st.booleans(), max_size=8), st.booleans())
def test_rows_are_those_of_the_batches_one_after_the_other(taken, shuffled):
    order = torch.arange(40).flip(0) if shuffled else None
    bounds = [bound for bound, is_taken in zip(batch_bounds(40, 5), taken, strict=False) if is_taken] or [(3, 7)]
    expected = [39 - position if shuffled else position for position in covered(bounds)]
    assert rows_of(order, bounds).tolist() == expected


def test_no_micro_batch_size_leaves_the_rank_batch_whole():
    assert even_bounds(10, None) == [(0, 10)]


def test_mix64_gives_the_published_numbers_of_splitmix64():
    # The first outputs of the reference implementation for the seeds 0 and 1234567.
    assert mix64(GOLDEN) == 0xE220A8397B1DCDAF
    assert mix64(1234567 + GOLDEN) == 6457827717110365317
    assert mix64(1234567 + 2 * GOLDEN) == 3203168211198807973


def test_neighbouring_seeds_and_epochs_share_no_key():
    keys = {stream_key(seed, epoch) for seed in range(-20, 20) for epoch in range(40)}
    assert len(keys) == 40 * 40


@given(st.integers(0, 200), st.integers(), st.integers(0, 1000))
def test_an_epoch_visits_every_sample_once_whatever_the_seed(samples, seed, epoch):
    assert sorted(epoch_permutation(samples, seed, epoch).tolist()) == list(range(samples))


def test_the_order_depends_on_seed_and_epoch_alone():
    torch.manual_seed(1)
    first = epoch_permutation(100, seed=3, epoch=5)
    torch.manual_seed(2)
    assert torch.equal(epoch_permutation(100, seed=3, epoch=5), first)
    assert not torch.equal(epoch_permutation(100, seed=4, epoch=5), first)
    assert not torch.equal(epoch_permutation(100, seed=3, epoch=6), first)
    assert not torch.equal(epoch_permutation(100, seed=5, epoch=3), first)


def test_making_an_order_leaves_the_default_generator_alone():
    before = torch.get_rng_state()
    epoch_permutation(100, seed=0, epoch=0)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_order_is_made_on_the_cpu_whatever_the_default_device_is():
    with torch.device("meta"):
        order = epoch_permutation(100, seed=0, epoch=0)
    assert order.device.type == "cpu"


def test_the_order_made_ahead_is_the_order(monkeypatch):
    monkeypatch.setattr(order_module, "WORTH_A_THREAD", 10)
    orders = EpochOrders()
    for epoch in (0, 1, 2, 5, 6, 0):
        assert torch.equal(orders.order(1000, 7, epoch), epoch_permutation(1000, 7, epoch))
    for seed in range(8):
        assert torch.equal(orders.order(1000, seed, 1), epoch_permutation(1000, seed, 1))
    made = []
    monkeypatch.setattr(order_module, "epoch_permutation", lambda *order: made.append(order) or torch.arange(3))
    orders.order(1000, 7, 3)
    orders._next[1].join()
    assert made == [(1000, 7, 3), (1000, 7, 4)]
    orders.order(1000, 7, 4)
    orders._next[1].join()
    assert made[2:] == [(1000, 7, 5)]  # the fourth was there


def test_a_copy_makes_its_orders_itself(monkeypatch):
    monkeypatch.setattr(order_module, "WORTH_A_THREAD", 10)
    orders = EpochOrders()
    orders.order(1000, 7, 1)
    assert torch.equal(copy.deepcopy(orders).order(1000, 7, 2), epoch_permutation(1000, 7, 2))
