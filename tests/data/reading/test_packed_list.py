import pickle
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import Dataset, Subset

from brim.data import Loader
from brim.data.reading.packed_list import WORTH_PACKING, PackedList, Packing

MANY = 2 * WORTH_PACKING
RECORDS = [(f"file-{i}.jpg", i % 10) for i in range(MANY)]


class Files(Dataset):
    def __init__(self, records):
        self.records, self.short = records, ["a", "b"]

    def __len__(self):
        return len(self.records)

    def __getitem__(self, index):
        name, label = self.records[index]
        return name.upper(), torch.tensor(label)


@given(st.lists(st.one_of(st.text(), st.integers(), st.tuples(st.floats(allow_nan=False)), st.none())), st.data())
def test_a_packed_list_gives_what_the_list_gives(items, data):
    made = PackedList(items)
    assert (len(made), list(made), list(reversed(made))) == (len(items), items, items[::-1])
    cut = data.draw(st.slices(len(items)))
    assert made[cut] == items[cut]
    for at in range(-len(items), len(items)):
        assert made[at] == items[at]
    for beyond in (len(items), -len(items) - 1):
        with pytest.raises(IndexError):
            made[beyond]


def test_a_packed_list_ends_where_it_ends_for_old_style_iteration():
    made = PackedList(["a", "b"])
    assert list(map(made.__getitem__, range(2))) == ["a", "b"]
    assert "b" in made
    assert made.index("b") == 1
    assert "c" not in made


def test_a_long_list_is_packed_and_smaller_than_its_objects():
    made = Packing(RECORDS).current()
    assert type(made) is PackedList
    assert list(made) == RECORDS
    assert len(pickle.dumps(made)) < 64 * MANY


def test_numbers_of_numpy_and_torch_index_as_they_do_a_list():
    made = Packing(RECORDS).current()
    assert made[torch.tensor(3)] == made[torch.arange(5).numpy()[3]] == RECORDS[3]


def test_a_data_set_with_a_long_list_is_another_object_over_the_same_samples():
    data = Files(RECORDS)
    twin = Packing(data).current()
    assert type(twin) is Files
    assert type(twin.records) is PackedList
    assert data.records is RECORDS
    assert twin.short is data.short
    assert [twin[at] for at in range(0, MANY, 997)] == [data[at] for at in range(0, MANY, 997)]


def test_the_indices_of_a_subset_are_packed():
    subset = Subset(Files(RECORDS), list(range(MANY - 1, 0, -1)))
    twin = Packing(subset).current()
    assert type(twin.indices) is PackedList
    assert twin[0] == subset[0]
    assert twin.__getitems__([3, 4]) == subset.__getitems__([3, 4])


def test_random_samples_are_compared_by_the_same_random_numbers():
    class Noisy(Files):
        def __getitem__(self, index):
            return torch.rand(()), self.records[index]

    assert type(Packing(Noisy(RECORDS)).current().records) is PackedList


def test_short_lists_and_other_things_stay_as_they_are():
    for data in (RECORDS[:-1][: WORTH_PACKING - 1], Files(RECORDS[:50]), tuple(RECORDS), torch.arange(MANY), 7):
        assert Packing(data).current() is data


class NotEqualToItsCopy:
    pass


@pytest.mark.parametrize("item", [lambda: 0, NotEqualToItsCopy(), float("nan"), torch.zeros(2).numpy()])
def test_objects_that_cannot_be_pickled_or_compared_are_left(item):
    items = [item] * MANY
    data = Files(items)
    assert Packing(items).current() is items
    assert Packing(data).current() is data


class NeedsAList(Files):
    def __getitem__(self, index):
        return list.__getitem__(self.records, index)


class LooksAtTheType(Files):
    def __getitem__(self, index):
        return type(self.records).__name__


class Caching(Files):
    def __getitem__(self, index):
        self.records[index] = "read"
        return index


class CannotBeCopied(Files):
    def __copy__(self):
        raise TypeError("there is only one")


class Slotted:
    __slots__ = ("records",)


@pytest.mark.parametrize("kind", [NeedsAList, LooksAtTheType, Caching, CannotBeCopied])
def test_a_class_that_needs_a_real_list_is_left_as_it_is(kind):
    data = kind(list(RECORDS))
    assert Packing(data).current() is data
    assert type(data.records) is list


def test_a_class_without_a_dict_is_left_as_it_is():
    data = Slotted()
    data.records = RECORDS
    assert Packing(data).current() is data


class LazilyOpened(Files):
    """Opens its file when the first sample is asked for, as data sets over HDF5 do: one handle for each process."""

    handle = None

    def __getitem__(self, index):
        self.handle = self.handle or Path(__file__).open()  # noqa: SIM115
        return self.records[index]


def test_packing_opens_no_files_in_the_data_set_nor_in_what_workers_get():
    data = LazilyOpened(RECORDS)
    twin = Packing(data).current()
    assert type(twin.records) is PackedList
    assert data.handle is None
    assert twin.handle is None


def test_a_packed_list_that_is_used_as_only_a_list_can_be_becomes_one():
    items, more = ["b", "a", "c"], ["d"]
    for use in (lambda x: x.copy(), lambda x: x + more, lambda x: more + x, lambda x: x * 2, lambda x: x == items):
        assert use(PackedList(items)) == use(items)
    made = PackedList(items)
    made[0] = "z"
    made.append("y")
    made.sort()
    del made[0]
    assert list(made) == ["c", "y", "z"]
    assert (len(made), made[-1], made[:2]) == (3, "z", ["c", "y"])


@pytest.mark.parametrize("item", [{"label": 1}, [1], (1, [2])], ids=["a dict", "a list", "a list in a tuple"])
def test_items_that_can_be_changed_in_place_are_left(item):
    items = [item] * MANY
    assert Packing(items).current() is items


class LeavesItsListOut(Files):
    def __getstate__(self):
        return {}


def test_a_data_set_is_packed_whatever_it_hands_over_when_it_is_copied():
    twin = Packing(LeavesItsListOut(RECORDS)).current()
    assert type(twin.records) is PackedList
    assert twin[5] == (RECORDS[5][0].upper(), torch.tensor(5))


def relabel(records):
    records[:] = [(name, 11) for name, _ in records]


def relabel_one(records):
    records[7] = (records[7][0], 11)


def lengthen(records):
    records.append(("new.jpg", 11))


def records_of(data):
    return getattr(data, "records", data)


@pytest.mark.parametrize("change", [relabel, relabel_one, lengthen])
def test_a_list_that_is_changed_in_place_is_packed_anew(change):
    for data in (Files(list(RECORDS)), list(RECORDS)):
        packing = Packing(data)
        kept = records_of(packing.current())
        assert isinstance(kept, PackedList) and records_of(packing.current()) is kept
        change(records_of(data))
        assert list(records_of(packing.current())) == records_of(data)


class Labelled(Dataset):
    def __init__(self):
        self.labels = [0.0] * WORTH_PACKING

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return torch.tensor([self.labels[index]])


@pytest.mark.parametrize("as_a_list", [False, True])
def test_workers_read_a_long_list_as_it_is_when_the_epoch_begins(as_a_list):
    data = Labelled()
    loader = Loader(data.labels if as_a_list else data, 2500, num_workers=1, shuffle=False)
    assert torch.cat(list(loader.batches(0, 0))).mean() == 0
    data.labels[:] = [1.0] * WORTH_PACKING
    assert torch.cat(list(loader.batches(0, 1))).mean() == 1


def test_packing_reads_nothing_from_the_data_set_itself():
    class Counted(Files):
        reads = 0

        def __getitem__(self, index):
            Counted.reads += 1
            self.seen.append(index)
            return self.records[index]

    data = Counted(RECORDS)
    data.seen = []
    Packing(data).current()
    assert (Counted.reads, data.seen) == (0, [])
