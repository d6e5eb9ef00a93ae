from collections import OrderedDict, UserDict, defaultdict, namedtuple
from dataclasses import dataclass, field

import pytest
import torch

from brim.data.batches.rebuild import attribute_names, with_attributes, with_content, with_items


@dataclass
class Scaled:
    """Halves what it is given, once."""

    x: int
    y: int = 0

    def __post_init__(self):
        self.x = self.x // 2


@dataclass(frozen=True, slots=True)
class Frozen:
    x: int
    hidden: int = field(default=3, init=False)


def test_a_dataclass_is_not_made_a_second_time():
    made = Scaled(8)
    made.added = "mine"
    assert attribute_names(made) == ["x", "y", "added"]
    again = with_attributes(made, {"x": made.x, "y": 5, "added": made.added})
    assert (type(again), again.x, again.y, again.added) == (Scaled, 4, 5, "mine")


def test_slots_and_frozen_fields_are_filled():
    again = with_attributes(Frozen(1), {"x": 2, "hidden": 9})
    assert attribute_names(Frozen(1)) == ["x", "hidden"] and (again.x, again.hidden) == (2, 9)


class Rows(list):
    def __init__(self, *values):
        raise AssertionError("not made anew")


Pair = namedtuple("Pair", "a b")


class Strict(Pair):
    def __new__(cls, a, b):
        raise AssertionError("not made anew")


@pytest.mark.parametrize("part", [[1, 2], (1, 2), Pair(1, 2), Rows.__new__(Rows), Strict._make([1, 2])])
def test_lists_and_tuples_keep_their_type(part):
    again = with_items(part, [3, 4])
    assert type(again) is type(part) and list(again) == [3, 4]


def test_what_torch_returns_keeps_its_type():
    part = torch.ones(2, 3).max(0)
    again = with_items(part, [torch.zeros(3), torch.ones(3)])
    assert type(again) is type(part) and torch.equal(again.values, torch.zeros(3))


class Counting(dict):
    def __setitem__(self, key, value):
        raise AssertionError("not filled by it")


class KeysAsAttributes(dict):
    def __init__(self, *given):
        super().__init__(*given)
        self.__dict__ = self


@pytest.mark.parametrize("kind", [dict, Counting, OrderedDict, UserDict, KeysAsAttributes])
def test_mappings_keep_their_type(kind):
    again = with_content(kind({"a": 1}), {"a": 2})
    assert type(again) is kind and dict(again) == {"a": 2}


def test_what_a_mapping_knows_besides_is_kept():
    assert with_content(defaultdict(list, a=1), {"a": 2})["b"] == []
    assert with_content(KeysAsAttributes({"a": 1}), {"a": 2}).a == 2
    user = UserDict({"a": 1})
    user.name = "mine"
    assert with_content(user, {"a": 2}).name == "mine"


def test_a_value_that_is_an_attribute_too_is_the_new_one_under_both_names():
    class Output(OrderedDict):
        pass

    part = Output(loss=1)
    part.loss, part.other = part["loss"], "kept"
    again = with_content(part, {"loss": 2})
    assert (again["loss"], again.loss, again.other) == (2, 2, "kept")
