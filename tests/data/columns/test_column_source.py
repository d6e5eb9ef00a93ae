import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import Subset, TensorDataset

from brim import Loader
from brim.data.columns import column_source
from brim.data.columns.column_source import ColumnSource, is_overlapping, moved, on_device, stored_bytes
from brim.data.columns.column_view import view_of
from brim.data.randomness.order import batch_bounds, epoch_permutation, rank_bounds
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


def epochs_of(data, change, batch_size=2):
    """What an epoch gives before and after ``change``, with the columns where they are and put somewhere else."""
    loader = Loader(data, batch_size, shuffle=False)
    first = [torch.as_tensor(flat(batch)).tolist() for batch in loader.batches(0, 0)]
    change()
    return first, [torch.as_tensor(flat(batch)).tolist() for batch in loader.batches(0, 1)]


def flat(batch):
    return batch[0] if isinstance(batch, list | tuple) else batch["x"] if isinstance(batch, dict) else batch


def replace_tensors(data):
    data.tensors = (torch.ones(4),)


def replace_by_more(data):
    data.tensors = (torch.ones(6),)


def change_in_place(data):
    data.tensors[0].fill_(1)


@pytest.mark.parametrize(
    ("change", "after"),
    [
        (replace_tensors, [[1, 1], [1, 1]]),
        (replace_by_more, [[1, 1], [1, 1], [1, 1]]),
        (change_in_place, [[1, 1], [1, 1]]),
    ],
)
@pytest.mark.parametrize(
    "wrap", [lambda data: data, lambda data: Subset(data, range(len(data)))], ids=["itself", "subset"]
)
def test_what_the_user_changes_between_epochs_is_read_anew(change, after, wrap):
    data = TensorDataset(torch.zeros(4))
    if wrap(data) is not data and change is replace_by_more:
        after = after[:2]  # the subset still has its four
    assert epochs_of(wrap(data), lambda: change(data)) == ([[0, 0], [0, 0]], after)


def test_arrays_and_columns_in_dicts_that_are_changed_or_replaced_are_read_anew():
    array = np.zeros(4)
    assert epochs_of(array, lambda: array.fill(1))[1] == [[1, 1], [1, 1]]
    columns = {"x": torch.zeros(4)}
    assert epochs_of(columns, lambda: columns.update(x=torch.ones(4)))[1] == [[1, 1], [1, 1]]


def test_indices_of_a_subset_that_are_changed_are_read_anew():
    subset = Subset(TensorDataset(torch.arange(4)), [0, 1])
    assert epochs_of(subset, lambda: subset.indices.reverse()) == ([[0, 1]], [[1, 0]])
    subset = Subset(TensorDataset(torch.arange(4)), [0, 1])
    assert epochs_of(subset, lambda: subset.indices.extend([3, 2])) == ([[0, 1]], [[0, 1], [3, 2]])


@pytest.mark.parametrize("change", [replace_tensors, change_in_place])
@pytest.mark.parametrize("shuffle", [True, False])
def test_a_change_within_an_epoch_is_seen_by_the_next_batch_as_with_torch(change, shuffle):
    data = TensorDataset(torch.zeros(4))
    seen = []
    for at, (x,) in enumerate(Loader(data, 1, shuffle=shuffle).batches(0, 0)):
        seen += x.tolist()
        if at == 1:
            change(data)
    assert seen == [0, 0, 1, 1]


@pytest.fixture
def copies(monkeypatch):
    """The devices that columns were copied to, in order."""
    made, real = [], column_source.on_device
    monkeypatch.setattr(column_source, "on_device", lambda view, device: made.append(device) or real(view, device))
    return made


def test_columns_on_another_device_are_copied_again_when_they_changed_and_not_otherwise(copies):
    data = TensorDataset(torch.zeros(4))
    loader = Loader(data, 2)
    loader.place(torch.device("meta"))
    for _ in range(2):
        list(loader.batches(0, 0))
    assert len(copies) == 1
    data.tensors[0].fill_(1)
    list(loader.batches(0, 1))
    data.tensors = (torch.ones(4),)
    list(loader.batches(0, 2))
    assert len(copies) == 3


def read_only(array):
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    ("data", "times"),
    [(np.zeros(4), 3), (torch.from_numpy(np.zeros(4)), 3), (read_only(np.zeros(4)), 1)],
    ids=["an array", "a tensor over an array", "a read-only array"],
)
def test_memory_that_numpy_may_write_to_is_copied_to_another_device_with_every_epoch(copies, data, times):
    loader = Loader(data, 2)
    loader.place(torch.device("meta"))
    for epoch in range(2):
        list(loader.batches(0, epoch))
    assert len(copies) == times


def test_a_subset_whose_epoch_is_being_read_goes_on_where_it_is_put():
    loader = Loader(Subset(TensorDataset(torch.arange(8)), [7, 5, 3, 1]), 1, shuffle=False)
    epoch = loader.batches(0, 0)
    assert next(epoch)[0].tolist() == [7]
    loader.place(torch.device("meta"))
    assert [batch[0].device.type for batch in epoch] == ["meta"] * 3


def test_data_that_becomes_shorter_within_an_epoch_is_refused():
    data = TensorDataset(torch.zeros(4))
    epoch = Loader(data, 1).batches(0, 0)
    next(epoch)
    data.tensors = (torch.zeros(3),)
    with pytest.raises(DataError, match="has 3 samples now, and had 4 when the epoch began"):
        list(epoch)


def test_tensors_made_in_inference_mode_are_columns_as_well():
    with torch.inference_mode():
        data = TensorDataset(torch.arange(4))
    assert [x.tolist() for (x,) in Loader(data, 2, shuffle=False)] == [[0, 1], [2, 3]]


def windows(steps=50, length=8, channels=3):
    return torch.randn(steps, channels).unfold(0, length, 1).transpose(1, 2)


@pytest.mark.parametrize("column", [torch.randn(5, 3), torch.randn(5, 3)[:, 1], torch.randn(5, 4).T, torch.zeros(0, 3)])
def test_columns_with_memory_of_their_own_are_not_overlapping(column):
    assert not is_overlapping(column)
    assert stored_bytes(column) == column.numel() * 4
    assert torch.equal(moved(column, torch.device("cpu")), column)


def test_windows_take_the_memory_of_their_series():
    assert is_overlapping(windows())
    assert stored_bytes(windows()) == 50 * 3 * 4
    assert stored_bytes(windows()[10:20]) == 17 * 3 * 4


def test_an_expanded_row_overlaps_as_well():
    expanded = torch.randn(1, 3).expand(100, 3)
    assert stored_bytes(expanded) == 12
    assert torch.equal(moved(expanded, torch.device("cpu")), expanded)


def test_moved_windows_are_the_same_and_share_one_copy():
    column = windows()[5:40]
    copied = moved(column, torch.device("cpu"))
    assert torch.equal(copied, column)
    assert copied.stride() == column.stride()


def test_moving_copies_the_memory_and_not_the_windows():
    column = windows()
    on_meta = moved(column, torch.device("meta"))
    assert on_meta.shape == column.shape
    assert on_meta.untyped_storage().nbytes() == 50 * 3 * 4


def test_a_view_of_windows_keeps_its_rows_on_the_device():
    data = Subset(TensorDataset(windows(), windows(length=8)), [3, 1, 30])
    on_meta = on_device(view_of(data), torch.device("meta"))
    assert on_meta.rows.tolist() == [3, 1, 30]
    assert [column.untyped_storage().nbytes() for column in on_meta.parts[0]] == [600, 600]


def test_what_windows_take_on_a_device_is_told_by_their_memory():
    source = ColumnSource(view_of(Subset(TensorDataset(windows()), list(range(40)))))
    assert source.bytes == 600


@pytest.mark.parametrize("shuffle", [False, True])
def test_batches_of_windows_are_those_of_copies(shuffle):
    column = windows()
    rows = [1, 2, 3, 10, 11, 12, 40]
    views = Loader(Subset(TensorDataset(column), rows), 3, shuffle=shuffle, device="cpu")
    copies = Loader((column[rows].clone(),), 3, shuffle=shuffle, device="cpu")
    for (one,), (other,) in zip(views.batches(0, 0), copies.batches(0, 0), strict=True):
        assert torch.equal(one, other)


@pytest.mark.gpu
def test_windows_on_a_gpu_are_those_of_copies():
    column = windows()
    rows = [1, 2, 3, 10, 11, 12, 40]
    views = Loader(Subset(TensorDataset(column), rows), 3, device="cuda")
    copies = Loader((column[rows].clone(),), 3, device="cuda")
    for (one,), (other,) in zip(views.batches(0, 0), copies.batches(0, 0), strict=True):
        assert one.device.type == "cuda"
        assert torch.equal(one, other)
