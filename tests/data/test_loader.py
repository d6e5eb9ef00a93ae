import random
from itertools import islice, pairwise

import numpy as np
import pytest
import torch
from helpers.batches import assert_same_batches
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader, Dataset, TensorDataset, default_collate, get_worker_info

from brim.data import Loader, as_feed
from brim.data.randomness.order import epoch_permutation
from brim.data.reading import workers
from brim.errors import ConfigError, DataError


class Squares(Dataset):
    """Samples that must be asked for one by one."""

    def __init__(self, samples):
        self.samples = samples

    def __len__(self):
        return self.samples

    def __getitem__(self, index):
        return torch.tensor(int(index)), torch.tensor(int(index) ** 2)


class Rows(Dataset):
    """Samples that can be asked for many at once, with values that are not equal to themselves."""

    def __init__(self, samples):
        self.x = torch.arange(samples * 2.0).reshape(samples, 2)
        self.x[::3] = torch.nan
        self.y = torch.arange(samples)

    def __len__(self):
        return len(self.y)

    def __getitem__(self, index):
        return self.x[index], self.y[index]


class Noise(Squares):
    """Augmentation by every generator there is."""

    def __getitem__(self, index):
        return torch.tensor(index), torch.tensor([torch.rand(()), random.random(), np.random.rand()])


class AskedByWorker(Squares):
    def __getitem__(self, index):
        return index, -1 if get_worker_info() is None else get_worker_info().id


class Augmented(Squares):
    def __getitem__(self, index):
        return torch.zeros(()), torch.rand(())


def columns(samples):
    return torch.arange(samples), torch.arange(samples) ** 2


def lists(batches):
    """Batches of several tensors, as plain lists."""
    return [[column.tolist() for column in batch] for batch in batches]


def plain_batches(order, batch_size, drop_last):
    """What a loader of squares should give, sample by sample."""
    batches = [order[first : first + batch_size] for first in range(0, len(order), batch_size)]
    return [[batch, [i**2 for i in batch]] for batch in batches if len(batch) == batch_size or not drop_last]


@pytest.mark.parametrize("data", [columns(23), Squares(23)], ids=["columns", "dataset"])
@pytest.mark.parametrize("drop_last", [False, True])
def test_batches_are_those_of_going_through_the_permutation_one_by_one(data, drop_last):
    loader = Loader(data, batch_size=5, drop_last=drop_last)
    expected = plain_batches(epoch_permutation(23, seed=4, epoch=2).tolist(), 5, drop_last)
    assert lists(loader.batches(seed=4, epoch=2)) == expected
    assert len(loader) == len(expected)


@given(st.integers(1, 40), st.integers(1, 12), st.booleans(), st.booleans(), st.integers(0, 41))
def test_batches_from_a_later_position_are_the_tail_of_the_epoch(samples, batch_size, shuffle, drop_last, batches_done):
    for data in (columns(samples), Squares(samples)):
        loader = Loader(data, batch_size, shuffle=shuffle, drop_last=drop_last)
        epoch = lists(loader.batches(seed=1, epoch=3))
        assert lists(loader.batches(seed=1, epoch=3, start=batches_done * batch_size)) == epoch[batches_done:]


@pytest.mark.parametrize("batch_size", [1, 4, 10, 32])
@pytest.mark.parametrize("drop_last", [False, True])
def test_a_tensor_dataset_read_by_columns_gives_what_torch_gives_sample_by_sample(batch_size, drop_last):
    data = TensorDataset(torch.randn(10, 3), torch.arange(10), torch.arange(10) > 4)
    ours = list(Loader(data, batch_size, shuffle=False, drop_last=drop_last))
    theirs = list(DataLoader(data, batch_size, drop_last=drop_last))
    assert [type(batch) for batch in ours] == [type(batch) for batch in theirs]
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


def test_in_order_means_every_sample_once_whatever_shuffle_and_drop_last_say():
    for data in (columns(10), Squares(10)):
        loader = Loader(data, batch_size=4, shuffle=True, drop_last=True)
        assert lists(loader.in_order()) == plain_batches(list(range(10)), 4, drop_last=False)
        assert len(list(loader.batches(0, 0))) == 2  # and training still drops its last


def test_each_iteration_is_the_next_epoch_in_the_loaders_own_seed():
    loader = Loader(columns(20), batch_size=6, seed=9)
    for epoch in range(3):
        assert lists(loader) == lists(loader.batches(seed=9, epoch=epoch))


def test_containers_of_columns_come_out_as_the_same_containers():
    x = torch.arange(6)
    batch = next(Loader({"x": x, "pair": (x + 10, x + 20)}, batch_size=2, shuffle=False).in_order())
    assert batch["x"].tolist() == [0, 1]
    assert type(batch["pair"]) is tuple
    assert [part.tolist() for part in batch["pair"]] == [[10, 11], [20, 21]]
    assert next(Loader(x, batch_size=3, shuffle=False).in_order()).tolist() == [0, 1, 2]


@pytest.mark.parametrize("persistent", [False, True])
def test_workers_give_the_same_batches_as_none(persistent):
    alone, helped = (
        Loader(Squares(30), batch_size=4, num_workers=workers, persistent_workers=persistent, prefetch_factor=2)
        for workers in (0, 2)
    )
    for epoch, start in ((0, 0), (1, 8)):
        assert lists(helped.batches(5, epoch, start)) == lists(alone.batches(5, epoch, start))


def test_workers_do_the_reading():
    batches = lists(Loader(AskedByWorker(8), batch_size=2, num_workers=2))
    assert {worker for batch in batches for worker in batch[1]} == {0, 1}


def test_a_collate_function_of_ones_own_sees_every_sample_even_of_columns():
    loader = Loader(
        TensorDataset(torch.arange(6)), batch_size=2, shuffle=False, collate_fn=lambda samples: len(samples)
    )
    assert list(loader) == [2, 2, 2]


def test_a_list_of_samples_is_a_data_set():
    loader = Loader([torch.tensor([i, i]) for i in range(3)], batch_size=2, shuffle=False)
    assert [batch.tolist() for batch in loader] == [[[0, 0], [1, 1]], [[2, 2]]]


@pytest.mark.parametrize("data", [columns(10), Squares(10)], ids=["columns", "dataset"])
def test_reading_leaves_the_default_generator_alone(data):
    loader, before = Loader(data, batch_size=4), torch.get_rng_state()
    list(loader.batches(0, 0))
    list(loader.in_order())
    assert torch.equal(torch.get_rng_state(), before)


def test_what_workers_draw_is_a_function_of_seed_and_epoch():
    loader = Loader(Augmented(8), batch_size=4, num_workers=2)
    torch.manual_seed(1)
    epoch = lists(loader.batches(3, 1))
    torch.manual_seed(2)
    assert lists(loader.batches(3, 1)) == epoch
    assert lists(loader.batches(3, 2)) != epoch


def test_two_epochs_of_a_data_set_can_be_asked_for_before_either_is_read():
    loader = Loader(Squares(12), batch_size=4)
    expected = [lists(loader.batches(0, epoch)) for epoch in (0, 1)]
    epochs = [loader.batches(0, 0), loader.batches(0, 1)]
    assert [lists(epoch) for epoch in epochs] == expected


def test_evaluating_in_the_middle_of_an_epoch_leaves_the_epoch_alone():
    for data in (columns(12), Squares(12)):
        loader = Loader(data, batch_size=4)
        expected = lists(loader.batches(0, 0))
        epoch = loader.batches(0, 0)
        seen = lists([next(epoch)])
        list(loader.in_order())
        assert seen + lists(epoch) == expected


@pytest.mark.parametrize("shuffle", [True, False])
def test_a_model_that_changes_its_batch_in_place_does_not_change_the_data(shuffle):
    data = TensorDataset(torch.ones(8))
    for (x,) in Loader(data, batch_size=4, shuffle=shuffle):
        x.mul_(2)
    assert data.tensors[0].tolist() == [1.0] * 8


def test_a_batch_size_below_one_is_refused():
    with pytest.raises(ConfigError, match="batch_size=0"):
        Loader(columns(4), batch_size=0)


def test_columns_of_different_lengths_are_refused_with_their_lengths():
    with pytest.raises(DataError, match="4, 5"):
        Loader((torch.zeros(4), torch.zeros(5)))


@pytest.mark.parametrize("data", [(torch.zeros(0),), TensorDataset(torch.zeros(0)), Squares(0), []])
def test_empty_data_is_refused(data):
    with pytest.raises(DataError, match="empty"):
        Loader(data)


@pytest.mark.parametrize("data", [{"x": torch.zeros(3), "y": "text"}, 7])
def test_data_without_a_length_is_refused_by_its_type(data):
    with pytest.raises(DataError, match=type(data).__name__):
        Loader(data)


def every_way(samples, batch_size, **order):
    """The same rows by every way there is in one process."""
    rows = Rows(samples)
    yield "columns", Loader(TensorDataset(rows.x, rows.y), batch_size, **order)
    for feed in ("auto", "batched", "samples", "resident"):
        loader = Loader(rows, batch_size, feed=feed, num_workers=0 if feed == "samples" else "auto", **order)
        loader.report = lambda sentence: None
        yield feed, loader
    yield "a list", Loader([rows[at] for at in range(samples)], batch_size, **order)
    yield "adopted", as_feed(DataLoader(rows, batch_size, **order))
    yield "adopted columns", as_feed(DataLoader(TensorDataset(rows.x, rows.y), batch_size, **order))


@given(
    samples=st.integers(1, 40),
    batch_size=st.integers(1, 12),
    shuffle=st.booleans(),
    drop_last=st.booleans(),
    start=st.integers(0, 41),
    epoch=st.integers(0, 3),
)
def test_every_way_gives_the_same_samples_in_the_same_order(samples, batch_size, shuffle, drop_last, start, epoch):
    rows = Rows(samples)
    order = epoch_permutation(samples, 7, epoch).tolist() if shuffle else list(range(samples))
    end = samples - samples % batch_size if drop_last else samples
    cuts = [order[at : min(at + batch_size, end)] for at in range(start, end, batch_size)]
    expected = [default_collate([rows[index] for index in cut]) for cut in cuts]
    for _, loader in every_way(samples, batch_size, shuffle=shuffle, drop_last=drop_last):
        assert_same_batches(list(loader.batches(7, epoch, start)), expected)


@pytest.mark.matrix(1)
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("feed", ["auto", "workers"])
def test_workers_give_the_same_as_columns_for_every_epoch_position_and_rank(shuffle, feed):
    rows = Rows(23)
    columns = Loader(TensorDataset(rows.x, rows.y), 5, shuffle=shuffle)
    for count in (1, 2):
        loader = Loader(rows, 5, shuffle=shuffle, feed=feed, num_workers=count)
        for place in ({}, {"start": 7}, {"rank": 1, "world": 2}, {"start": 10, "rank": 0, "world": 3}):
            assert_same_batches(list(loader.batches(1, 2, **place)), list(columns.batches(1, 2, **place)))


@given(st.integers(1, 40), st.integers(1, 12), st.integers(1, 5), st.booleans(), st.booleans(), st.integers(0, 41))
def test_the_shares_of_the_ranks_in_their_order_are_the_batch(samples, batch_size, world, shuffle, drop_last, start):
    loader = Loader(columns(samples), batch_size, shuffle=shuffle, drop_last=drop_last)
    batches = lists(loader.batches(1, 2, start))
    ranks = [lists(loader.batches(1, 2, start, rank, world)) for rank in range(world)]
    assert [len(rank) for rank in ranks] == [len(batches)] * world
    for batch, *shares in zip(batches, *ranks, strict=True):
        assert [[number for share in shares for number in share[part]] for part in (0, 1)] == batch
        sizes = [len(share[0]) for share in shares]
        assert max(sizes) - min(sizes) <= 1


@pytest.mark.matrix(1)
@pytest.mark.parametrize("world", [1, 2, 3])
def test_ranks_share_batches_in_every_way(world):
    for _, loader in every_way(12, 6, shuffle=True, drop_last=False):
        batches = list(loader.batches(3, 1))
        ranks = [list(loader.batches(3, 1, rank=rank, world=world)) for rank in range(world)]
        joined = [[torch.cat(parts) for parts in zip(*shares, strict=True)] for shares in zip(*ranks, strict=True)]
        assert_same_batches(joined, batches)


@pytest.mark.parametrize(
    "feed",
    [
        "resident",
        "batched",
        "samples",
    ],
)
def test_a_rank_may_have_no_sample_of_the_last_batch(feed):
    loader = Loader(Rows(5), batch_size=4, feed=feed)
    sizes = [[len(batch[1]) for batch in loader.batches(0, 0, rank=rank, world=2)] for rank in (0, 1)]
    assert sizes == [[2, 0], [2, 1]]


@pytest.mark.parametrize("feed", ["samples", "workers"])
@pytest.mark.parametrize("data", [columns(6), dict(zip("xy", columns(6), strict=True))], ids=["tuple", "dict"])
def test_columns_are_read_one_by_one_when_asked_for(data, feed):
    loader = Loader(data, batch_size=4, shuffle=False, feed=feed, num_workers=1 if feed == "workers" else 0)
    batches = [list(batch.values()) if isinstance(batch, dict) else batch for batch in loader]
    assert lists(batches) == plain_batches(list(range(6)), 4, drop_last=False)


class Table(Dataset):
    """A table of 300 rows, some with holes, whose samples are made by ``get``."""

    def __init__(self, get):
        self.x = torch.arange(300.0)[:, None].repeat(1, 16)
        self.x[::60, 2] = torch.nan
        self.get, self.epoch = get, 0

    def __len__(self):
        return 300

    def __getitem__(self, index):
        return self.get(self, index)


def zeroed_where_it_has_holes(data, index):
    return torch.zeros(16) if torch.isnan(data.x[index]).any() else data.x[index]


def cut(data, index):
    return data.x[index][:100]


def normed(data, index):
    return data.x[index] / data.x[index].nan_to_num().max().clamp(min=1e3)


def corrected(data, index):
    return data.x[index] + (1000 if index == 77 else 0)


@pytest.mark.parametrize("get", [zeroed_where_it_has_holes, cut, normed, corrected])
def test_a_getitem_for_one_index_is_asked_for_one_index_at_a_time(get):
    data = Table(get)
    loader = Loader(data, batch_size=128)
    loader.report = lambda sentence: None
    order = epoch_permutation(300, 1, 0).tolist()
    expected = [default_collate([data[at] for at in order[a : a + 128]]) for a in range(0, 300, 128)]
    torch.testing.assert_close(list(loader.batches(1, 0)), expected, rtol=0, atol=0, equal_nan=True)


class FromTheSecondEpochOn(Squares):
    epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __getitem__(self, index):
        return torch.rand(()) if self.epoch else torch.zeros(())


def test_augmentation_that_starts_in_the_second_epoch_is_drawn_for_each_sample():
    loader = Loader(FromTheSecondEpochOn(300), batch_size=100)
    drawn = [torch.cat(list(loader.batches(0, epoch))).unique() for epoch in range(2)]
    assert [len(numbers) for numbers in drawn] == [1, 300]


def test_augmentation_is_the_same_with_any_number_of_workers_and_after_a_resume():
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    alone = Loader(Noise(20), batch_size=4, num_workers=0)
    epochs = [lists(alone.batches(3, epoch)) for epoch in (0, 1)]
    drawn = [number for epoch in epochs for batch in epoch for sample in batch[1] for number in sample]
    assert len(set(drawn)) == len(drawn)
    for count in (0, 1, 2):
        loader = Loader(Noise(20), batch_size=4, num_workers=count)
        assert [lists(loader.batches(3, epoch)) for epoch in (0, 1)] == epochs
        assert lists(loader.batches(3, 1, start=8)) == epochs[1][2:]
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]
    assert np.random.get_state()[1].tolist() == before[2]


def test_augmentation_is_the_same_whatever_the_process_drew_before():
    loader = Loader(Noise(8), batch_size=4)
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    epoch = lists(loader.batches(0, 0))
    random.seed(2), np.random.seed(2), torch.manual_seed(2)
    assert lists(loader.batches(0, 0)) == epoch


def test_a_data_set_with_an_order_of_its_own_is_read_in_it():
    class Backwards(Squares):
        def epoch_order(self, seed, epoch):
            return torch.arange(self.samples - 1, -1, -1).roll(epoch)

    loader = Loader(Backwards(6), batch_size=4)
    assert [batch[0] for batch in lists(loader.batches(0, 1))] == [[0, 5, 4, 3], [2, 1]]
    assert [batch[0] for batch in lists(loader.in_order())] == [[0, 1, 2, 3], [4, 5]]


@pytest.mark.parametrize("data", [columns(3), Squares(3)], ids=["columns", "dataset"])
def test_data_shorter_than_a_batch_is_one_short_batch_or_none(data):
    assert [len(batch[0]) for batch in Loader(data, batch_size=8)] == [3]
    nothing = Loader(data, batch_size=8, drop_last=True)
    assert list(nothing) == []
    assert len(nothing) == 0


class Failing(Squares):
    def __getitem__(self, index):
        if int(index) == 5:
            raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")
        return torch.tensor(int(index))


@pytest.mark.parametrize(
    "way", [{"feed": "samples"}, {"num_workers": 1}, {"feed": "resident"}, {}], ids=["samples", "1", "resident", "auto"]
)
def test_a_sample_that_cannot_be_read_is_named_in_every_way(way):
    loader = Loader(Failing(8), batch_size=3, shuffle=False, **way)
    loader.report = lambda sentence: None
    with pytest.raises(DataError, match="sample 5 of Failing cannot be read: UnicodeDecodeError"):
        list(loader)


def test_shared_memory_that_is_too_small_is_said_before_any_worker_starts(monkeypatch):
    monkeypatch.setattr(workers, "free_shared_memory", lambda: 100)
    with pytest.raises(DataError, match=r"2 workers .* /dev/shm"):
        next(iter(Loader(Squares(8), batch_size=8, num_workers=2)))


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ({"feed": "fast"}, "feed='fast' is none of auto"),
        ({"num_workers": -1}, "num_workers=-1"),
        ({"num_workers": "many"}, "num_workers='many'"),
        ({"prefetch_factor": 0}, "prefetch_factor=0"),
        ({"feed": "workers", "num_workers": 0}, "contradict"),
    ],
)
def test_settings_that_make_no_sense_are_refused(setting, said):
    with pytest.raises(ConfigError, match=said):
        Loader(columns(4), **setting)


def test_columns_are_kept_where_they_fit_and_the_choice_says_so():
    loader = Loader(columns(10), batch_size=4)
    assert loader.choice.path == "columns"
    room = 160 + (160 - 2 * 64)  # two blocks of all rows, of which the step has two batches anyway
    assert not loader.place(torch.device("cpu"), room=room - 1)
    assert loader.place(torch.device("cpu"), room=room)
    assert loader.choice.path == "resident on cpu"
    assert Loader(columns(10), device="cpu").choice.path == "resident on cpu"
    assert not Loader(columns(10), feed="batched").place(torch.device("cpu"))
    assert not Loader(Squares(10)).place(torch.device("cpu"))


@pytest.mark.parametrize(("rows", "batch_size"), [(10, 4), (10, 10), (100_000, 4), (100_000, 50_000), (5_000_000, 9)])
def test_the_blocks_in_which_rows_are_gathered_take_what_is_said(rows, batch_size):
    loader = Loader((torch.zeros(rows), torch.zeros(rows)), batch_size, device="cpu")
    blocks = [x._base for x, y in islice(loader, 1_500)]
    sizes = [0, *(2 * block.untyped_storage().nbytes() for block in dict.fromkeys(blocks))]
    together = max(one + other for one, other in pairwise(sizes))
    assert max(0, together - 2 * 8 * batch_size) == loader.block_bytes


def test_training_on_the_cpu_keeps_columns_there_and_leaves_cores_to_the_model():
    loader, samples = Loader(columns(10)), Loader(Squares(10))
    for each in (loader, samples):
        each.compute_on(torch.device("cpu"))
    assert loader.choice.path == "resident on cpu"
    assert samples.request.computes_here
    samples = Loader(Squares(10))
    samples.compute_on(torch.device("cuda"), ranks=8, ranks_here=4)
    assert (samples.request.ranks, samples.request.ranks_here, samples.request.rank_batch) == (8, 4, 4)


def test_choosing_reads_no_sample_that_is_not_needed():
    class Counted(Squares):
        asked = 0

        def __getitem__(self, index):
            Counted.asked += 1
            return super().__getitem__(index)

    loader = Loader(Counted(8), batch_size=4)
    assert len(loader) == 2
    assert loader.choice.path == "samples one by one"
    assert Counted.asked == 0
    next(loader.batches(0, 0))
    assert Counted.asked == 4


@pytest.mark.gpu
def test_columns_on_the_gpu_give_the_same_batches_there():
    on_cpu = Loader(columns(50), batch_size=8)
    on_gpu = Loader(tuple(column.cuda() for column in columns(50)), batch_size=8)
    assert all(x.is_cuda for batch in on_gpu.batches(3, 1) for x in batch)
    assert lists(on_gpu.batches(3, 1, start=16)) == lists(on_cpu.batches(3, 1, start=16))


@pytest.mark.gpu
def test_batches_of_a_data_set_are_pinned_when_asked():
    batch = next(Loader(Squares(8), batch_size=4, pin_memory=True).batches(0, 0))
    assert all(x.is_pinned() for x in batch)
