import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset

from brim.doctor.cures import resident_data
from brim.doctor.cures.batch_moves import BatchMoves
from brim.doctor.cures.batched_columns import fetch_columns_at_once
from brim.doctor.cures.resident_data import AFTER, PART, ResidentColumns, bytes_in_batch

pytestmark = pytest.mark.usefixtures("undone")
ENOUGH = 1 << 30


@pytest.fixture
def held(monkeypatch):
    """Columns that are held where the script asks for them, with so much memory; copies, as on another device."""
    move = resident_data.moved
    copied = lambda columns, devices: move(resident_data.with_tensors(columns, torch.clone), devices)  # noqa: E731
    monkeypatch.setattr(resident_data, "moved", copied)

    def hold(free=ENOUGH):
        moves = BatchMoves("cpu")
        resident = ResidentColumns(moves, lambda device: free)
        fetch_columns_at_once(resident)
        moves.install()
        return resident

    return hold


class Triples(Dataset):
    """Columns of a class of its own, which may change from epoch to epoch."""

    def __init__(self):
        self.user, self.item, self.calls = np.arange(40), torch.arange(40.0).reshape(40, 1), []

    def __len__(self):
        return 40

    def __getitem__(self, index):
        self.calls.append(index)
        return {"user": self.user[index], "both": (self.item[index], self.user[index])}


def tables():
    return TensorDataset(torch.arange(80.0).reshape(40, 2), torch.arange(40))


def epochs(data, count=3, between=lambda data: None):
    """What a script sees that copies the first tensor of its batches."""
    torch.manual_seed(0)
    loader = DataLoader(data, batch_size=4, shuffle=True)
    seen = []
    for _ in range(count):
        for batch in loader:
            first, second = (batch["user"], batch["both"][0]) if isinstance(batch, dict) else batch
            seen.append((type(batch), first.to("cpu").tolist(), second.tolist(), first.dtype, second.dtype))
        between(data)
    return seen


@pytest.mark.parametrize("make", [tables, lambda: Subset(tables(), range(39, 2, -1)), Triples])
def test_batches_are_the_same_in_every_epoch(make, held):
    plain = epochs(make())
    resident = held()
    data = make()
    assert epochs(data) == plain
    assert resident.held[id(data)][1] is not None


def test_columns_are_read_once_and_batches_are_gathered(held):
    held()
    data = Triples()
    epochs(data, count=1)
    whole = [index for index in data.calls if isinstance(index, np.ndarray) and len(index) == 40]
    assert len(whole) == 1
    before = len(data.calls)
    epochs(data, count=1)
    assert len(data.calls) - before == 3  # a sample for the size, one for the form, and all of them


@pytest.mark.parametrize("make", [tables, Triples])
def test_a_data_set_that_is_changed_between_epochs_is_read_again(make, held):
    def double(data):
        for column in data.tensors if isinstance(data, TensorDataset) else (data.user, data.item):
            column *= 2

    plain = epochs(make(), between=double)
    held()
    assert epochs(make(), between=double) == plain


def test_what_does_not_fit_well_stays_where_it_is(held):
    data = tables()
    plain, size = epochs(data), bytes_in_batch(data.tensors)
    resident = held(free=size / PART - 1)
    assert epochs(data) == plain and resident.held[id(data)][1] is None


def test_nothing_is_held_before_the_step_has_its_memory_or_where_nothing_is_copied(held):
    resident = held()
    data = tables()
    for number, (x, _) in enumerate(DataLoader(data, batch_size=4), start=1):
        assert (id(data) in resident.held) is (number > AFTER)
        x.to("cpu")
    other = tables()
    assert len(list(DataLoader(other, batch_size=2))) == 20 and id(other) not in resident.held


def test_workers_gather_nothing_on_a_device(held):
    resident = held()
    data = tables()
    for _ in range(2):
        for x, _ in DataLoader(data, batch_size=4, num_workers=1):
            x.to("cpu")
    assert resident.held == {}
