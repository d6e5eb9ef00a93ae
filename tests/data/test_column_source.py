import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from brim.data import column_source
from brim.data.column_source import ColumnSource
from brim.data.order import batch_bounds, epoch_permutation, rank_bounds
from brim.data.times import FeedTimes
from brim.errors import DataError

X = torch.arange(6)


def lists(batches):
    return [batch.tolist() for batch in batches]


@pytest.mark.parametrize(("sizes", "said"), [((4, 5), "4, 5"), ((0, 0), "empty")])
def test_columns_must_be_of_one_length_and_not_empty(sizes, said):
    with pytest.raises(DataError, match=said):
        ColumnSource(tuple(torch.zeros(size) for size in sizes))


@given(
    samples=st.integers(1, 60),
    batch_size=st.integers(1, 20),
    shuffle=st.booleans(),
    start=st.integers(0, 61),
    world=st.integers(1, 5),
    data=st.data(),
)
def test_blocks_of_any_size_give_what_rows_one_by_one_give(samples, batch_size, shuffle, start, world, data):
    rank = data.draw(st.integers(0, world - 1))
    order = epoch_permutation(samples, 1, 2) if shuffle else None
    bounds = [rank_bounds(*both, rank, world) for both in batch_bounds(samples, batch_size, start)]
    read = ColumnSource({"x": torch.arange(samples) * 3, "y": (torch.arange(samples).float(),)}).read
    plain = list(range(samples)) if order is None else order.tolist()
    batches = list(read(order, iter(bounds)))
    assert lists(batch["x"] for batch in batches) == [[3 * i for i in plain[first:stop]] for first, stop in bounds]
    assert lists(batch["y"][0] for batch in batches) == [plain[first:stop] for first, stop in bounds]


def test_little_is_gathered_before_the_first_batch_and_never_more_than_the_limits(monkeypatch):
    monkeypatch.setattr(column_source, "MOST_BLOCK_BYTES", 5 * 4 * 8)  # five batches
    taken = []
    bounds = (taken.append(at) or at for at in batch_bounds(400, 4))
    ahead = [len(taken) - at for at, _ in enumerate(ColumnSource(torch.arange(400)).read(None, bounds))]
    assert ahead[0] == 1
    assert max(ahead) == 5


def test_a_batch_larger_than_a_block_comes_whole(monkeypatch):
    monkeypatch.setattr(column_source, "MOST_BLOCK_BYTES", 1)
    assert lists(ColumnSource(X).read(None, batch_bounds(6, 4))) == [[0, 1, 2, 3], [4, 5]]


@pytest.mark.parametrize("order", [None, torch.arange(6)], ids=["in order", "shuffled"])
def test_batches_are_copies(order):
    column = torch.arange(6)
    for batch in ColumnSource(column).read(order, batch_bounds(6, 4)):
        batch.zero_()
    assert column.tolist() == list(range(6))


def test_an_epoch_that_is_being_read_goes_on_where_the_columns_are_put():
    source = ColumnSource(torch.arange(8))
    epoch = source.read(None, batch_bounds(8, 2))
    assert next(epoch).device.type == "cpu"
    source.place(torch.device("meta"))
    assert [batch.device.type for batch in epoch] == ["meta"] * 3
    assert source.is_resident
    assert source.device.type == "meta"


def test_gathering_is_timed():
    times = FeedTimes()
    list(ColumnSource(X, times).read(None, batch_bounds(6, 2)))
    assert times.fetch > 0
