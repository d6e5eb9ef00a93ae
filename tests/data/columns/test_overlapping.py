"""Windows that share memory are kept on a device once, and give the rows that copies of them would."""

import pytest
import torch
from torch.utils.data import Subset, TensorDataset

from brim import Loader
from brim.data.columns.column_source import ColumnSource, on_device
from brim.data.columns.column_view import view_of
from brim.data.columns.overlapping import is_overlapping, moved, stored_bytes


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
