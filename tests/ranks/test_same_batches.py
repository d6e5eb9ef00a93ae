"""Data that is not the same on all ranks: refused, or warned about, before anything is trained on half of it."""

import os

import pytest
import torch
from rank_training import SAMPLES, X, Y, train
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    Sampler,
    Subset,
    TensorDataset,
    default_collate,
)

import brim
from brim.engine.distributed.same_batches import mark_of

DATA = TensorDataset(X, Y)


def rank():
    return int(os.environ.get("RANK", "0"))


def world():
    return int(os.environ.get("WORLD_SIZE", "1"))


class Sharding(Sampler):
    """As one finds them: it is not torch's DistributedSampler, and gives each rank its share."""

    def __len__(self):
        return len(range(rank(), SAMPLES, world()))

    def __iter__(self):
        return iter(range(rank(), SAMPLES, world()))


class ShardingBatches(BatchSampler):
    """Every n-th batch."""

    def __init__(self):
        super().__init__(range(SAMPLES), 8, drop_last=True)

    def __iter__(self):
        return (batch for number, batch in enumerate(super().__iter__()) if number % world() == rank())


class ByName(Sharding):
    num_replicas = 2


class OwnSeed(Sampler):
    """Shuffles with a generator of each rank's own."""

    def __len__(self):
        return SAMPLES

    def __iter__(self):
        return iter(torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(rank())).tolist())


class OwnSeedLater(OwnSeed):
    """The first epoch is the same everywhere."""

    def __init__(self):
        self.epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        return super().__iter__() if self.epoch else iter(range(SAMPLES))


class ShardedStream(IterableDataset):
    def __iter__(self):
        return iter([(X[n], Y[n]) for n in range(rank(), SAMPLES, world())])


class Longer(Dataset):
    """Has other samples on each rank, and keeps a table of them."""

    def __init__(self):
        self.numbers = list(range(rank(), 194, world()))

    def __len__(self):
        return len(self.numbers)

    def __getitem__(self, index):
        return X[self.numbers[index]], Y[self.numbers[index]]


REFUSED = {
    "sampler": lambda: DataLoader(DATA, 8, sampler=Sharding()),
    "batch sampler": lambda: DataLoader(DATA, batch_sampler=ShardingBatches()),
    "by name": lambda: DataLoader(DATA, 8, sampler=ByName()),
    "own seed": lambda: DataLoader(DATA, 8, sampler=OwnSeed()),
    "stream": lambda: DataLoader(ShardedStream(), 8),
    "stream of brim's": lambda: brim.Loader(ShardedStream(), 8),
    "ready batches": lambda: list(zip(X.split(8), Y.split(8), strict=True))[rank() : 24 : world()],
    "columns": lambda: (X[rank() : 194 : world()], Y[rank() : 194 : world()]),
    "columns of another length": lambda: (X[: 100 + rank()], Y[: 100 + rank()]),
    "subset": lambda: brim.Loader(Subset(DATA, range(rank(), 194, world())), 8),
    "seed of later epochs": lambda: DataLoader(DATA, 8, sampler=OwnSeedLater()),
}


def with_data(case):
    return train(REFUSED[case](), epochs=2, max_steps=None)


@pytest.mark.matrix(1)
@pytest.mark.parametrize("case", REFUSED)
def test_data_that_differs_between_ranks_is_refused(launch, case):
    for outcome in launch.outcomes(2, with_data, case=case):
        assert outcome.error == "DataError", outcome.output[-2000:]
        assert "its share of every batch by itself" in outcome.message


def evaluated_on(case):
    return train(eval_data=REFUSED[case](), epochs=1, max_steps=None)


@pytest.mark.matrix(1)
@pytest.mark.parametrize("case", ["sampler", "stream of brim's", "columns"])
def test_so_is_evaluation_data(launch, case):
    for outcome in launch.outcomes(2, evaluated_on, case=case):
        assert outcome.error == "DataError" and "the evaluation data" in outcome.message, outcome.output[-2000:]


def with_sharded_table():
    return train(brim.Loader(Longer(), 8), max_steps=4)


def test_a_data_set_that_keeps_other_samples_on_each_rank_is_worth_a_warning(launch):
    first, second = launch.outcomes(2, with_sharded_table)
    assert "what Longer keeps for its samples is not the same on all ranks" in " ".join(first.output.split())
    assert "Longer" not in second.output


def standardised(samples):
    x, y = default_collate(samples)
    return x - x.mean(0), y


def collated_from_one_another():
    return train(DataLoader(list(zip(X, Y, strict=True)), 16, collate_fn=standardised), max_steps=2)


def test_collating_samples_from_one_another_is_worth_a_warning_since_each_rank_has_a_part(launch):
    first, second = launch.outcomes(2, collated_from_one_another)
    assert "collate_fn computes the samples of a batch from one another (batch[0]" in " ".join(first.output.split())
    assert "collate_fn" not in second.output


class OwnNoise(Dataset):
    """Augmentation that draws from a generator of its own: other inputs on each rank, the same samples."""

    def __init__(self):
        self.generator = torch.Generator().manual_seed(rank())

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        return X[index] + torch.randn(6, generator=self.generator), Y[index]


class InOrder(Sampler):
    def __len__(self):
        return SAMPLES

    def __iter__(self):
        return iter(range(SAMPLES))


def with_noise():
    return train(DataLoader(OwnNoise(), 16, sampler=InOrder()), max_steps=3)


def test_batches_that_differ_in_part_are_worth_a_warning(launch):
    first, _ = launch.outcomes(2, with_noise)
    assert not first.error and "differ in part" in " ".join(first.output.split())


SAME = {
    "columns": lambda: (X, Y),
    "own sampler": lambda: DataLoader(DATA, 16, sampler=InOrder()),
    "ready batches": lambda: list(zip(X.split(16), Y.split(16), strict=True)),
    "stream": lambda: brim.Loader([(x, y) for x, y in zip(X, Y, strict=True)], 16),
}


def with_the_same(case):
    return train(SAME[case](), epochs=2, max_steps=None)


@pytest.mark.matrix(1)
@pytest.mark.parametrize("case", SAME)
def test_data_that_is_the_same_on_all_ranks_is_trained_on_without_a_word(launch, case):
    for outcome in launch.outcomes(2, with_the_same, case=case):
        assert not outcome.error and "warning" not in outcome.output, outcome.output[-2000:]


def test_a_tensor_of_one_value_tells_no_samples_apart():
    assert mark_of(torch.ones(4)) is None and mark_of(torch.ones(4).numpy()) is None
    assert mark_of(torch.tensor([1.0, float("nan")])) == mark_of(torch.tensor([1.0, float("nan")]))
    assert mark_of(torch.arange(4)) != mark_of(torch.arange(4.0))
