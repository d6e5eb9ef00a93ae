import random

import numpy
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from brim.data import Feed, Loader, as_feed, batches_per_epoch, named_feed, position_after
from brim.data.feed import ReadyBatches
from brim.data.randomness.order import epoch_permutation
from brim.errors import DataError

NUMBERS = TensorDataset(torch.arange(11))


class Numbers(Dataset):
    def __len__(self):
        return 11

    def __getitem__(self, index):
        return torch.tensor(index)


class Stream(IterableDataset):
    def __iter__(self):
        return iter(torch.arange(11))


def lists(batches):
    return [(batch[0] if isinstance(batch, list) else batch).tolist() for batch in batches]


def flat(batches):
    return [number for batch in lists(batches) for number in batch]


def test_what_is_a_feed_already_is_left_as_it_is():
    loader = Loader(torch.arange(4))
    assert as_feed(loader) is loader


@pytest.mark.parametrize("dataset", [NUMBERS, Numbers()], ids=["columns", "samples"])
def test_an_adopted_dataloader_with_shuffle_gives_each_sample_once_in_brims_order(dataset):
    feed = as_feed(DataLoader(dataset, batch_size=4, shuffle=True))
    assert flat(feed.batches(seed=2, epoch=5)) == epoch_permutation(11, 2, 5).tolist()
    assert lists(feed.batches(2, 5)) == lists(feed.batches(2, 5)) != lists(feed.batches(2, 6))
    assert lists(feed.batches(2, 5, start=4)) == lists(feed.batches(2, 5))[1:]


@pytest.mark.parametrize("dataset", [NUMBERS, Numbers()], ids=["columns", "samples"])
@pytest.mark.parametrize("drop_last", [False, True])
def test_an_adopted_dataloader_without_shuffle_gives_what_torch_gives(dataset, drop_last):
    loader = DataLoader(dataset, batch_size=4, drop_last=drop_last)
    feed = as_feed(loader)
    assert isinstance(feed, Loader)
    assert lists(feed.batches(seed=2, epoch=5)) == lists(loader)
    assert batches_per_epoch(feed) == len(loader)


def test_an_adopted_dataloader_keeps_its_collate_function_and_workers():
    loader = DataLoader(Numbers(), batch_size=4, shuffle=True, num_workers=2, collate_fn=sum_of)
    feed, order = as_feed(loader), epoch_permutation(11, 0, 0).tolist()
    assert isinstance(feed, Loader)
    assert list(feed.batches(0, 0)) == [sum(order[:4]), sum(order[4:8]), sum(order[8:])]


def sum_of(samples):
    return sum(int(sample) for sample in samples)


@pytest.mark.parametrize("dataset", [NUMBERS, Numbers()], ids=["columns", "samples"])
def test_a_dataset_or_columns_become_a_shuffling_loader(dataset):
    assert flat(as_feed(dataset).batches(1, 2)) == epoch_permutation(11, 1, 2).tolist()


def test_a_sampler_of_ones_own_decides_the_order():
    backwards = list(range(10, -1, -1))
    feed = as_feed(DataLoader(NUMBERS, batch_size=4, sampler=backwards))
    assert flat(feed.batches(0, 0)) == flat(feed.batches(1, 1)) == backwards


def test_a_batch_sampler_of_ones_own_decides_the_batches():
    batches = [[3, 1], [0], [7, 8, 9]]
    assert lists(as_feed(DataLoader(NUMBERS, batch_sampler=batches)).batches(0, 0)) == batches


@pytest.mark.parametrize(
    "sampler",
    [
        RandomSampler(NUMBERS, replacement=True),
        RandomSampler(NUMBERS, num_samples=5),
        SubsetRandomSampler([1, 3, 5, 7, 9]),
        WeightedRandomSampler([1.0] * 10 + [0.0], 20),
    ],
    ids=["with replacement", "some only", "subset", "weighted"],
)
def test_samplers_that_draw_are_a_function_of_seed_and_epoch_and_resume(sampler):
    feed = as_feed(DataLoader(NUMBERS, batch_size=2, sampler=sampler))
    torch.manual_seed(1)
    epoch = lists(feed.batches(3, 4))
    torch.manual_seed(2)
    assert len(flat(epoch_tensors(epoch))) == len(sampler)
    assert lists(feed.batches(3, 4)) == epoch
    assert lists(feed.batches(3, 4, start=4)) == epoch[2:]
    assert lists(feed.batches(3, 5)) != epoch
    assert lists(feed.batches(5, 4)) != epoch


def test_a_sampler_with_replacement_goes_on_replacing():
    feed = as_feed(DataLoader(NUMBERS, batch_size=4, sampler=RandomSampler(NUMBERS, replacement=True)))
    assert all(len(set(flat(feed.batches(0, epoch)))) < 11 for epoch in range(5))


def epoch_tensors(epoch):
    return [torch.tensor(batch) for batch in epoch]


def test_reading_somebody_elses_batches_leaves_the_default_generator_alone():
    feed = as_feed(DataLoader(NUMBERS, batch_size=2, sampler=SubsetRandomSampler([1, 3, 5])))
    before = torch.get_rng_state()
    list(feed.batches(0, 0))
    assert torch.equal(torch.get_rng_state(), before)


def test_a_batch_sampler_of_torchs_own_keeps_its_shuffling_and_drop_last():
    sampler = BatchSampler(RandomSampler(NUMBERS), batch_size=4, drop_last=True)
    epochs = [lists(as_feed(DataLoader(NUMBERS, batch_sampler=sampler)).batches(0, epoch)) for epoch in (0, 1)]
    assert [[len(batch) for batch in epoch] for epoch in epochs] == [[4, 4], [4, 4]]
    assert epochs[0] != epochs[1]


def test_a_sampler_of_ones_own_inside_torchs_batch_sampler_decides_the_order():
    sampler = BatchSampler([5, 3, 1], batch_size=2, drop_last=False)
    assert lists(as_feed(DataLoader(NUMBERS, batch_sampler=sampler)).batches(0, 0)) == [[5, 3], [1]]


@pytest.mark.parametrize("sampler", [RandomSampler, SequentialSampler])
def test_a_sampler_over_a_part_of_the_data_gives_that_part(sampler):
    feed = as_feed(DataLoader(NUMBERS, batch_size=2, sampler=sampler(range(4))))
    assert sorted(flat(feed.batches(0, 0))) == [0, 1, 2, 3]


def test_a_tuple_of_samples_in_a_dataloader_is_a_data_set():
    samples = tuple(torch.tensor([i, i, i]) for i in range(4))
    loader = DataLoader(samples, batch_size=2)
    assert lists(as_feed(loader).batches(0, 0)) == lists(loader)


def test_a_generator_that_the_user_gave_stays_the_source_of_the_order():
    def loader():
        return DataLoader(NUMBERS, batch_size=4, shuffle=True, generator=torch.Generator().manual_seed(5))

    assert lists(as_feed(loader()).batches(0, 0)) == lists(loader())


def test_a_distributed_sampler_is_told_the_epoch():
    sampler = DistributedSampler(NUMBERS, num_replicas=1, rank=0, seed=3)
    feed = as_feed(DataLoader(NUMBERS, batch_size=4, sampler=sampler))
    epochs = [lists(feed.batches(0, epoch)) for epoch in (0, 1, 0)]
    assert epochs[0] == epochs[2] != epochs[1]


def test_a_stream_is_read_from_its_start_and_its_length_is_unknown():
    feed = as_feed(DataLoader(Stream(), batch_size=4))
    assert batches_per_epoch(feed) is None
    assert lists(feed.batches(0, 0)) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10]]
    assert lists(feed.batches(0, 0, start=4)) == [[4, 5, 6, 7], [8, 9, 10]]


def test_a_list_holds_ready_batches():
    feed = as_feed([torch.arange(3), torch.arange(2)])
    assert isinstance(feed, ReadyBatches)
    assert isinstance(feed, Feed)
    assert batches_per_epoch(feed) == 2
    assert lists(feed.batches(0, 0)) == lists(feed.in_order()) == [[0, 1, 2], [0, 1]]
    assert lists(feed.batches(0, 0, start=3)) == [[0, 1]]
    assert lists(feed.batches(0, 0, start=5)) == []


def test_no_batches_at_all_are_no_error_of_the_feed():
    assert list(as_feed([]).batches(0, 0)) == []


def test_an_iterator_is_refused_because_it_ends_after_one_epoch():
    with pytest.raises(DataError, match="only once"):
        as_feed(iter([torch.arange(3)]))


@pytest.mark.parametrize("data", ["text", b"bytes", 3, None])
def test_what_cannot_be_trained_on_is_shown(data):
    with pytest.raises(DataError, match=f"{data!r} is no data"):
        as_feed(data)


@pytest.mark.parametrize("sample", [3, "text", (3, 0.5), {"x": 3}, torch.tensor(3)], ids=str)
def test_a_list_of_what_has_no_batch_dimension_holds_samples(sample):
    feed = as_feed([sample] * 40)
    assert isinstance(feed, Loader)
    assert batches_per_epoch(feed) == 2


SAMPLES = {
    "features and a class": (torch.zeros(8), torch.tensor(3)),
    "features and a number": (torch.zeros(8), 0.5),
    "features and one target": (torch.zeros(8), torch.zeros(1)),
    "a picture and its class": (torch.zeros(3, 32, 32), 5),
    "in a dict": {"x": torch.zeros(8), "y": 2},
    "two inputs and a class": (torch.zeros(8), torch.zeros(3), 1),
}


@pytest.mark.parametrize("sample", SAMPLES.values(), ids=SAMPLES.keys())
def test_what_can_only_be_a_sample_is_not_taken_for_a_batch(sample):
    feed = as_feed([sample] * 320)
    assert isinstance(feed, Loader)
    assert batches_per_epoch(feed) == 10


def test_a_tuple_of_samples_is_taken_for_samples_or_refused_where_it_looks_like_columns():
    assert batches_per_epoch(as_feed((SAMPLES["a picture and its class"],) * 320)) == 10
    with pytest.raises(DataError, match="samples go into a list"):
        as_feed((SAMPLES["features and one target"],) * 320)


BATCHES = {
    "rows and targets": (torch.zeros(16, 8), torch.zeros(16, 1)),
    "rows, targets and a weight": (torch.zeros(16, 8), torch.zeros(16), 0.5),
    "pictures and the boxes of all": (torch.zeros(4, 3, 8, 8), torch.zeros(17, 6)),
    "one tensor": torch.zeros(16, 8),
    "one row at a time": (torch.zeros(1, 8), torch.zeros(1)),
    "as long a target as features": (torch.zeros(8), torch.zeros(8)),
}


@pytest.mark.parametrize("batch", BATCHES.values(), ids=BATCHES.keys())
def test_what_can_be_a_batch_is_one_and_the_line_says_what_to_do_if_it_is_not(batch):
    feed = as_feed([batch] * 320)
    assert isinstance(feed, ReadyBatches)
    assert feed.sentence().startswith("data: 320 ready batches, as they come")
    assert "brim.Loader(samples" in feed.sentence()


def test_a_loader_of_ones_own_is_told_as_what_it_is():
    assert as_feed(DataLoader(NUMBERS, sampler=[0, 1])).sentence() == "data: ready batches, as they come"


def note_worker(worker):
    raise AssertionError("torch runs this in workers alone")


def test_a_dataloader_without_workers_whose_init_function_waits_for_some_gets_none():
    assert as_feed(DataLoader(Numbers(), 4, worker_init_fn=note_worker)).request.workers == 0


class LikeHF:
    __module__ = "datasets.arrow_dataset"

    def __len__(self):
        return 11

    def __getitem__(self, index):
        return {"x": torch.tensor(int(index))}


def test_an_hf_data_set_is_a_data_set_whatever_its_class():
    (batch,) = as_feed(LikeHF()).in_order()
    assert batch["x"].tolist() == list(range(11))


def test_a_dataloader_without_workers_leaves_their_number_open_and_others_keep_theirs():
    assert as_feed(DataLoader(Numbers(), batch_size=4)).request.workers is None
    adopted = as_feed(DataLoader(Numbers(), batch_size=4, num_workers=2, prefetch_factor=3, timeout=5))
    assert (adopted.request.workers, adopted.request.prefetch, adopted.request.settings.timeout) == (2, 3, 5)


def test_the_position_counts_places_for_loaders_and_samples_for_others():
    loader, ready = Loader(Numbers(), batch_size=4), as_feed([torch.arange(3), torch.arange(2)])
    assert position_after(loader, 0, batches=1, samples=3) == 4  # a damaged one was left out
    assert position_after(loader, 8, batches=1, samples=3) == 11  # and no place lies beyond the end
    assert position_after(ready, 0, batches=1, samples=3) == 3
    assert position_after(Loader(Stream(), batch_size=4), 4, batches=1, samples=3) == 7


class Levelled(Numbers):
    """A data set that is changed between epochs, and one that is told the epoch."""

    level = epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __getitem__(self, index):
        return torch.tensor([int(index), self.level, self.epoch])


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    "make", [lambda d, w: DataLoader(d, 4, num_workers=w), lambda d, w: Loader(d, 4, num_workers=w)]
)
def test_workers_see_what_was_changed_between_epochs(make, workers):
    data = Levelled()
    feed = as_feed(make(data, workers))
    for epoch in range(2):
        data.level = 10 * epoch
        rows = torch.cat(list(feed.batches(0, epoch)))
        assert rows[:, 1].unique().tolist() == [10 * epoch]
        assert rows[:, 2].unique().tolist() == [epoch]


@pytest.mark.parametrize("sampler", [None, range(11)], ids=["torch's order", "an order of one's own"])
def test_evaluating_tells_no_epoch_to_data_that_training_reads_too(sampler):
    data = Levelled()
    training = as_feed(DataLoader(data, 4, sampler=sampler)).batches(0, epoch=3)
    next(training)
    list(as_feed(DataLoader(data, 4, sampler=sampler)).in_order())
    assert next(training)[:, 2].unique().tolist() == [3]


class Noisy(Numbers):
    def __getitem__(self, index):
        return torch.rand(()) + numpy.random.rand() + random.random()


def test_somebody_elses_loader_draws_the_same_from_a_later_position_and_leaves_the_models_numbers_alone():
    feed = as_feed(DataLoader(Noisy(), 4, sampler=SubsetRandomSampler(range(11))))
    assert isinstance(feed, ReadyBatches)
    state = torch.get_rng_state()
    whole = list(feed.batches(3, 1))
    assert torch.equal(torch.get_rng_state(), state)
    torch.rand(5)
    assert all(torch.equal(a, b) for a, b in zip(feed.batches(3, 1, start=4), whole[1:], strict=True))


@pytest.mark.parametrize("dataset", [NUMBERS, Numbers()], ids=["columns", "samples"])
def test_a_collate_function_that_is_replaced_between_epochs_is_used_from_then_on(dataset):
    loader = DataLoader(dataset, 4)
    feed = as_feed(loader)
    assert len(list(feed.batches(0, 0))) == 3
    loader.collate_fn = len
    assert list(feed.batches(0, 1)) == list(loader) == [4, 4, 3]


def test_a_data_set_that_grew_is_read_whole_in_the_next_epoch():
    data = [torch.tensor(i) for i in range(4)]
    loader = Loader(data, 2, shuffle=False, collate_fn=torch.stack)
    assert len(list(loader.batches(0, 0))) == 2
    data.extend([torch.tensor(4), torch.tensor(5)])
    assert len(list(loader.batches(0, 1))) == 3


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ([], "test_data is empty: it has no batch"),
        (Loader(torch.ones(3), 4, drop_last=True), "test_data has no batch: it is shorter than batch_size"),
        (torch.ones(0, 2), "test_data: the data is empty"),
        ("x.csv", "test_data: 'x.csv' is no data"),
    ],
)
def test_data_that_cannot_be_read_is_refused_by_its_name(data, told):
    with pytest.raises(DataError, match=told):
        named_feed(data, "test_data")


def test_data_that_can_be_read_is_a_feed():
    assert len(named_feed([torch.ones(2)], "train_data")) == 1


@pytest.mark.parametrize(("samples", "world"), [(10, 2), (10, 3), (2, 3), (9, 1)])
def test_whole_batches_of_all_ranks_are_those_of_one_in_turn(samples, world):
    loader = Loader(torch.arange(samples), 3)
    shares = [[batch.tolist() for batch in loader.in_order(rank, world, whole=True)] for rank in range(world)]
    wanted = [batch.tolist() for batch in loader.in_order()]
    assert [shares[number % world][number // world] for number in range(len(wanted))] == wanted
    assert sum(map(len, shares)) == len(wanted)
