import copy
import gc
import itertools
import multiprocessing
import random
from collections import Counter, deque

import numpy as np
import pytest
import torch

from brim.data.probing.state import StateWatch, brief_watch, holds_shared_memory

READS = [0]


class Holding:
    """A data set that holds ``thing`` and does ``change`` to itself when it is read."""

    def __init__(self, thing, change):
        self.thing, self.change = thing, change

    def __getitem__(self, index):
        self.change(self)
        return index


class Nested:
    def __init__(self):
        self.level = {"hard": [1]}


class Slotted:
    __slots__ = ("level",)

    def __init__(self):
        self.level = 0


def count(data):
    data.reads = getattr(data, "reads", 0) + 1


def deepen(data):
    data.thing.level["hard"].append(3)


def count_in_a_slot(data):
    data.thing.level += 1


CHANGES = {
    "a counter": (None, count),
    "a list": ([], lambda data: data.thing.append(1)),
    "an item of a list": ([1, 2], lambda data: data.thing.__setitem__(0, data.thing[0] + 1)),
    "a dict": ({}, lambda data: data.thing.update(a=len(data.thing))),
    "a set": (set(), lambda data: data.thing.add(len(data.thing))),
    "a counter of things": (Counter(), lambda data: data.thing.update("a")),
    "a queue": (deque([1, 2]), lambda data: data.thing.rotate()),
    "a tensor": (torch.zeros(3), lambda data: data.thing.add_(1)),
    "a tensor behind torch's back": (torch.zeros(3), lambda data: data.thing.data.add_(1)),
    "an array": (np.zeros(3), lambda data: data.thing.__iadd__(1)),
    "an array of objects": (np.array([None, None]), lambda data: data.thing.__setitem__(0, [data.thing[0]])),
    "something in something": (Nested(), deepen),
    "a slot": (Slotted(), count_in_a_slot),
    "Python's generator": (random.Random(0), lambda data: data.thing.random()),
    "numpy's generator": (np.random.default_rng(0), lambda data: data.thing.random()),
    "numpy's old generator": (np.random.RandomState(0), lambda data: data.thing.rand()),
    "torch's generator": (torch.Generator(), lambda data: torch.rand(1, generator=data.thing)),
    "an iterator": (iter([1, 2, 3]), lambda data: next(data.thing)),
    "a count": (itertools.count(), lambda data: next(data.thing)),
    "a Python generator": ((i for i in range(9)), lambda data: next(data.thing)),
}


@pytest.mark.parametrize(("thing", "change"), CHANGES.values(), ids=CHANGES.keys())
def test_whatever_reading_changes_is_noticed(thing, change):
    for make in (StateWatch, brief_watch):
        data = Holding(thing, change)
        watch = make(data)
        data[0]
        assert watch.changed() in ("thing", "reads")


def test_reading_that_changes_nothing_is_not_taken_for_a_change():
    class Plain:
        table, names = torch.arange(5), ["a", "b"]

        def __init__(self):
            self.x, self.nan = {"a": [torch.zeros(3), np.ones(2), float("nan")]}, float("nan")
            self.rng, self.transform = np.random.default_rng(0), Nested()
            self.again = self

        def __getitem__(self, index):
            return self.x["a"][0] + self.table[index], self.names

    data = Plain()
    for make in (StateWatch, brief_watch):
        watch = make(data)
        data[0]
        assert watch.changed() is None


def test_a_file_that_is_read_from_has_moved(tmp_path):
    (tmp_path / "lines").write_text("a\nb\n")
    with (tmp_path / "lines").open("rb") as file:
        data = Holding(file, lambda data: data.thing.read(1))
        watch = StateWatch(data)
        data[0]
        assert watch.changed() == "thing"


def test_a_class_a_closure_and_a_global_that_reading_changes_are_noticed():
    class Classy:
        reads = 0

        def __getitem__(self, index):
            type(self).reads += 1

    seen = []
    closure = Holding(None, lambda data: seen.append(1))

    class Globally:
        def __getitem__(self, index):
            READS[0] += 1

    for data in (Classy(), closure, Globally()):
        watch = StateWatch(data)
        data[0]
        assert watch.changed() is not None


def test_of_what_is_too_long_to_be_looked_at_the_ends_and_the_length_are():
    data = Holding(list(range(1000)), None)
    watch = StateWatch(data, most_parts=10)
    data.thing.append(0)
    assert watch.changed() == "thing"
    watch = StateWatch(data, most_parts=10)
    data.thing[3] = "new"
    assert watch.changed() == "thing"


def test_an_array_that_takes_most_of_what_may_be_looked_at_is_looked_at_whole():
    data = Holding(np.zeros(100), None)
    watch = StateWatch(data, most_bytes=data.thing.nbytes + 1)
    data.thing[50] = 1
    assert watch.changed() == "thing"


def test_a_list_a_dict_and_a_function_are_watched_by_their_content():
    data = [1, 2]
    watch = StateWatch(data)
    data[0] = 5
    assert watch.changed() == "content"
    noted = []
    watch = StateWatch(lambda batch: noted)
    noted.append(1)
    assert watch.changed() == "content"


def test_memory_that_other_processes_write_to_is_seen():
    assert holds_shared_memory(Holding(torch.zeros(3).share_memory_(), None))
    assert holds_shared_memory(Holding({"step": multiprocessing.Value("i", 0)}, None))
    assert not holds_shared_memory(Holding(torch.zeros(3), None))


def test_a_watch_has_met_that_on_its_way():
    assert StateWatch(Holding(torch.zeros(3).share_memory_(), None)).met_shared_memory
    assert not StateWatch(Holding(torch.zeros(3), None)).met_shared_memory


def test_of_a_sparse_tensor_nobody_knows_where_it_lies_and_another_one_is_noticed():
    data = Holding(torch.eye(3).to_sparse(), None)
    assert holds_shared_memory(data)
    watch = StateWatch(data)
    assert watch.changed() is None
    data.thing = torch.eye(4).to_sparse()
    assert watch.changed() == "thing"


ONE_FOR_ANOTHER = [
    ([1, 2], [True, 2]),
    ([1, True], [True, 1]),
    ([1, 2], [2, 1]),
    (["a"], [b"a"]),
    ([0.0], [-0.0]),
    ([1, None], [None, 1]),
    ([1], [1.0]),
    ([], [None]),
    ({"a": 1}, {"a": True}),
    ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    ({"a": [1, 2]}, {"a": [1, 3]}),
    ({1: "a"}, {True: "a"}),
    (torch.tensor([0.0]), torch.tensor([-0.0])),
    (torch.tensor(1), torch.tensor(2)),
    (torch.tensor([1 + 2j]), torch.tensor([1 - 2j])),
    (torch.zeros(2, dtype=torch.bfloat16), torch.ones(2, dtype=torch.bfloat16)),
    (torch.arange(4).view(2, 2).t(), torch.arange(4).view(2, 2)),
]


@pytest.mark.parametrize(("one", "other"), ONE_FOR_ANOTHER, ids=lambda value: str(value)[:30])
def test_plain_values_in_containers_are_told_apart_by_type_order_and_bits(one, other):
    data = Holding([one], None)
    watch = StateWatch(data)
    assert watch.changed() is None
    data.thing[0] = copy.deepcopy(one)
    assert watch.changed() is None  # the same, made anew
    data.thing[0] = other
    assert watch.changed() == "thing"


def test_garbage_is_collected_after_a_look_and_not_again_and_again_meanwhile():
    data, collected = Holding([{"ids": [at, str(at)]} for at in range(3000)], None), []
    gc.callbacks.append(lambda phase, info: collected.append(phase))
    try:
        StateWatch(data).changed()
    finally:
        gc.callbacks.pop()
    assert collected.count("start") <= 2  # two looks
    assert gc.isenabled()


def test_advice_that_a_tokenizer_has_given_is_no_change():
    class Tokenizer(type("Base", (), {"__module__": "transformers.tokenization_utils_base"})):
        def __init__(self):
            self.deprecation_warnings, self.pad_token = {}, "[PAD]"

    data = [Tokenizer()]
    watch = StateWatch(data)
    data[0].deprecation_warnings["Asking-to-pad-a-fast-tokenizer"] = True
    assert watch.changed() is None
    data[0].pad_token = "[END]"
    assert watch.changed() == "content"
