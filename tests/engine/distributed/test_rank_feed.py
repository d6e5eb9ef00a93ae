"""Shares of batches, without processes: the ranks of these tests are numbers."""

from itertools import islice

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import Dataset, IterableDataset

import brim
from brim.data import as_feed, batch_length
from brim.engine.distributed.rank_feed import RankFeed
from brim.engine.distributed.ranks import Ranks


class Numbers(Dataset):
    def __init__(self, samples):
        self.samples = samples

    def __len__(self):
        return self.samples

    def __getitem__(self, index):
        return torch.tensor([float(index)]), {"number": index}


class NumberStream(IterableDataset):
    def __init__(self, samples):
        self.samples = samples

    def __iter__(self):
        return iter([torch.tensor([n]) for n in range(self.samples)])


def feeds(samples, batch_size, shuffle, drop_last):
    """The same data in every form that a rank reads in a way of its own."""
    settings = {"shuffle": shuffle, "drop_last": drop_last}
    numbers = torch.arange(samples)
    yield brim.Loader(numbers, batch_size, **settings)
    yield brim.Loader({"a": numbers, "b": numbers.float()}, batch_size, **settings)
    yield brim.Loader(Numbers(samples), batch_size, num_workers=0, feed="samples", **settings)
    yield brim.Loader(NumberStream(samples), batch_size, drop_last=drop_last)
    yield as_feed(list(numbers.split(batch_size)))


def first_column(batch):
    while not isinstance(batch, torch.Tensor):
        batch = next(iter(batch.values())) if isinstance(batch, dict) else batch[0]
    return batch.flatten().tolist()


@given(
    samples=st.integers(1, 40),
    batch_size=st.integers(1, 13),
    world=st.integers(1, 7),
    epoch=st.integers(0, 2),
    batches_before=st.integers(0, 4),
    shuffle=st.booleans(),
    drop_last=st.booleans(),
)
def test_the_shares_of_all_ranks_are_the_batch_of_one(
    samples, batch_size, world, epoch, batches_before, shuffle, drop_last
):
    start = min(batches_before * batch_size, samples)
    for feed in feeds(samples, batch_size, shuffle, drop_last):
        alone = RankFeed(feed, Ranks())
        ranks = [RankFeed(feed, Ranks(rank, world)) for rank in range(world)]
        whole = list(alone.batches(7, epoch, start))
        shares = [list(rank.batches(7, epoch, start)) for rank in ranks]
        assert {len(of_rank) for of_rank in shares} == {len(whole)}
        for number, batch in enumerate(whole):
            together = [sample for of_rank in shares for sample in first_column(of_rank[number])]
            assert together == first_column(batch)  # each once, and in the order of one rank
            sizes = [batch_length(of_rank[number]) for of_rank in shares]
            assert max(sizes) - min(sizes) <= 1
        lengths = [[rank.take_length() for _ in whole] for rank in [alone, *ranks]]
        assert all(of_rank == [batch_length(batch) for batch in whole] for of_rank in lengths)


@pytest.mark.slow
@given(samples=st.integers(1, 60), batch_size=st.integers(1, 13), worlds=st.lists(st.integers(1, 6), min_size=2))
def test_ranks_may_become_more_or_fewer_in_the_middle_of_an_epoch(samples, batch_size, worlds):
    """Every batch is computed by another number of ranks, which begin where those before them stopped."""
    for feed in feeds(samples, batch_size, shuffle=True, drop_last=False):
        position, seen = 0, []
        for turn in range(-(-samples // batch_size)):
            world = worlds[turn % len(worlds)]
            ranks = [RankFeed(feed, Ranks(rank, world)) for rank in range(world)]
            shares = [list(islice(rank.batches(3, 1, position), 1)) for rank in ranks]
            seen += [sample for of_rank in shares for sample in first_column(of_rank[0])]
            position += ranks[0].take_length()
        expected = [sample for batch in feed.batches(3, 1) for sample in first_column(batch)]
        assert seen == expected


def test_a_rank_without_a_sample_has_an_empty_batch_of_the_same_form():
    feed = RankFeed(brim.Loader({"a": torch.arange(5), "b": torch.zeros(5, 3)}, 4, shuffle=False), Ranks(0, 2))
    first, last = feed.batches(0, 0)
    assert first["a"].tolist() == [0, 1]
    assert last["a"].shape == (0,)
    assert last["b"].shape == (0, 3)
    assert [feed.take_length(), feed.take_length()] == [4, 1]
