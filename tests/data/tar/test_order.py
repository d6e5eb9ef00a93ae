import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from brim.data.tar.order import READERS, epoch_order
from brim.errors import ConfigError

counts_of_shards = st.lists(st.integers(0, 30), max_size=20)
buffers = st.integers(1, 200)


@given(counts_of_shards, st.integers(), st.integers(0, 1000), buffers)
def test_an_epoch_visits_every_sample_once_whatever_the_shards(counts, seed, epoch, buffer):
    assert sorted(epoch_order(counts, seed, epoch, buffer).tolist()) == list(range(sum(counts)))


@given(counts_of_shards, st.integers(-100, 100), st.integers(0, 100), buffers)
def test_the_order_depends_on_counts_seed_epoch_and_buffer_alone(counts, seed, epoch, buffer):
    torch.manual_seed(1)
    first = epoch_order(counts, seed, epoch, buffer)
    torch.manual_seed(2)
    assert torch.equal(epoch_order(counts, seed, epoch, buffer), first)


@given(st.lists(st.integers(20, 40), min_size=3, max_size=12), st.integers(-100, 100), st.integers(0, 100))
def test_epochs_and_seeds_have_orders_of_their_own(counts, seed, epoch):
    first = epoch_order(counts, seed, epoch)
    assert not torch.equal(epoch_order(counts, seed, epoch + 1), first)
    assert not torch.equal(epoch_order(counts, seed + 1, epoch), first)


@given(st.integers(1, 20), st.integers(1, 50), st.integers(0, 100))
def test_a_window_is_a_stretch_of_as_many_shards_as_there_are_readers(shards, samples, epoch):
    buffer = min(READERS, shards) * samples
    order = epoch_order([samples] * shards, 0, epoch, buffer)
    touched = {sample // samples for sample in order[:buffer].tolist()}
    assert len(touched) == min(READERS, shards)


def test_samples_of_one_shard_are_shuffled_too():
    order = epoch_order([1000], 0, 0).tolist()
    assert order != sorted(order)


def test_a_buffer_of_one_leaves_the_turns_of_the_readers():
    order = epoch_order([5, 5], 0, 0, buffer=1).tolist()
    assert order in ([0, 5, 1, 6, 2, 7, 3, 8, 4, 9], [5, 0, 6, 1, 7, 2, 8, 3, 9, 4])


def test_making_an_order_leaves_the_default_generator_alone():
    before = torch.get_rng_state()
    epoch_order([10, 20], 0, 0)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_order_is_made_on_the_cpu_as_int64_whatever_the_default_device_is():
    with torch.device("meta"):
        order = epoch_order([10, 20], 0, 0)
    assert (order.device.type, order.dtype) == ("cpu", torch.int64)


@pytest.mark.parametrize("buffer", [0, -1, 2.0, True])
def test_a_buffer_that_is_no_whole_number_above_0_is_refused(buffer):
    with pytest.raises(ConfigError, match=r"buffer=.* must be a whole number of at least 1"):
        epoch_order([10], 0, 0, buffer)
