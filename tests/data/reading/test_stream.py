import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader, IterableDataset

from brim.data import Loader, as_feed, batches_per_epoch
from brim.errors import DataError


class Stream(IterableDataset):
    def __init__(self, samples, make=torch.tensor):
        self.samples, self.make = samples, make
        self.epochs = []

    def __iter__(self):
        return map(self.make, range(self.samples))

    def set_epoch(self, epoch):
        self.epochs.append(epoch)


def lists(batches):
    return [batch.tolist() for batch in batches]


@given(st.integers(0, 20), st.integers(1, 8), st.booleans())
def test_a_stream_gives_the_batches_that_torch_gives(samples, batch_size, drop_last):
    loader = Loader(Stream(samples), batch_size, drop_last=drop_last)
    theirs = DataLoader(Stream(samples), batch_size, drop_last=drop_last)
    assert lists(loader.batches(0, 0)) == lists(theirs)


@given(st.integers(0, 20), st.integers(1, 8), st.booleans(), st.integers(0, 25))
def test_a_later_position_is_reached_by_reading_up_to_it(samples, batch_size, drop_last, start):
    loader = Loader(Stream(samples), batch_size, drop_last=drop_last)
    rest = list(range(samples))[start:]
    batches = [rest[at : at + batch_size] for at in range(0, len(rest), batch_size)]
    expected = [batch for batch in batches if len(batch) == batch_size or not drop_last]
    assert lists(loader.batches(0, 0, start)) == expected


@given(st.integers(1, 20), st.integers(2, 8), st.integers(1, 2))
def test_the_shares_of_the_ranks_are_the_batch(samples, batch_size, world):
    loader = Loader(Stream(samples), batch_size, drop_last=True)
    shares = zip(*(lists(loader.batches(0, 0, rank=rank, world=world)) for rank in range(world)), strict=True)
    for batch, share in zip(lists(loader.batches(0, 0)), shares, strict=True):
        assert [number for part in share for number in part] == batch
        assert max(map(len, share)) - min(map(len, share)) <= 1


def test_a_rank_may_have_no_sample_of_the_last_batch():
    loader = Loader(Stream(5), batch_size=4)
    batches = [list(loader.batches(0, 0, rank=rank, world=2)) for rank in (0, 1)]
    assert [[len(batch) for batch in rank] for rank in batches] == [[2, 0], [2, 1]]


def test_in_order_is_everything_even_the_last():
    assert lists(Loader(Stream(5), 4, drop_last=True).in_order()) == [[0, 1, 2, 3], [4]]


def test_the_stream_is_told_the_epoch_when_it_is_read():
    data = Stream(5)
    loader = Loader(data, 4)
    list(loader.batches(0, 7))
    list(loader.batches(0, 8, start=4))
    assert data.epochs == [7, 8]


def noisy(index):
    return torch.tensor([index, torch.rand(()), random.random()], dtype=torch.float64)


def test_random_samples_are_a_function_of_seed_and_epoch_and_resume():
    loader = Loader(Stream(10, noisy), batch_size=4)
    before = torch.get_rng_state(), random.getstate()
    epoch = lists(loader.batches(3, 1))
    assert lists(loader.batches(3, 1)) == epoch
    assert lists(loader.batches(3, 1, start=4)) == epoch[1:]
    assert lists(loader.batches(3, 2)) != epoch
    assert lists(loader.batches(4, 1)) != epoch
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]


def test_a_stream_is_a_feed_of_unknown_length():
    feed = as_feed(Stream(5))
    assert isinstance(feed, Loader)
    assert batches_per_epoch(feed) is None
    assert feed.samples is None
    assert "stream" in feed.choice.sentence()
    assert not feed.place(torch.device("cpu"))
    assert lists(feed) == [[0, 1, 2, 3, 4]]


def test_epochs_read_side_by_side_do_not_disturb_each_other():
    loader = Loader(Stream(10, noisy), batch_size=4)
    expected = lists(loader.batches(0, 0)), lists(loader.batches(0, 1))
    pairs = list(zip(loader.batches(0, 0), loader.batches(0, 1), strict=True))
    assert (lists(first for first, _ in pairs), lists(second for _, second in pairs)) == expected


def broken(index):
    if index == 6:
        raise OSError(5, "bad sector", "file 6")
    return torch.tensor(index)


def test_a_stream_that_fails_says_where_after_the_batches_before():
    seen = []
    with pytest.raises(DataError, match=r"a sample after number 4 of Stream cannot be read: OSError.*bad") as caught:
        seen.extend(lists([batch])[0] for batch in Loader(Stream(10, broken), batch_size=4))
    assert seen == [[0, 1, 2, 3]]
    assert isinstance(caught.value.__cause__, OSError)


def longer_seventh(index):
    return torch.zeros(2 if index == 7 else 1)


def test_samples_that_cannot_be_put_together_are_told_apart_by_their_place():
    with pytest.raises(DataError, match=r"4 samples of Stream cannot.*sample 7 has a tensor \(2,\)"):
        list(Loader(Stream(10, longer_seventh), batch_size=4))


def test_a_later_rank_tells_the_place_in_the_stream_as_well():
    with pytest.raises(DataError, match=r"2 samples of Stream cannot.*sample 7 has a tensor \(2,\)"):
        list(Loader(Stream(10, longer_seventh), batch_size=4).batches(0, 0, rank=1, world=2))


def test_a_collate_function_of_ones_own_sees_every_batch():
    assert list(Loader(Stream(5, int), 2, collate_fn=sum)) == [1, 5, 4]


def test_reading_is_timed():
    loader = Loader(Stream(5), 2)
    list(loader)
    assert loader.times.fetch > 0
