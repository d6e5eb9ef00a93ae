import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, get_worker_info

from brim.data import Loader
from brim.data.order import epoch_permutation
from brim.errors import ConfigError, DataError


class Squares(Dataset):
    """Samples that must be asked for one by one."""

    def __init__(self, samples):
        self.samples = samples

    def __len__(self):
        return self.samples

    def __getitem__(self, index):
        return torch.tensor(index), torch.tensor(index**2)


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


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(3))


@pytest.mark.parametrize("data", [Stream(), {"x": torch.zeros(3), "y": "text"}, 7])
def test_data_without_a_length_is_refused_by_its_type(data):
    with pytest.raises(DataError, match=type(data).__name__):
        Loader(data)


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
