import dataclasses
from collections import OrderedDict, UserDict, defaultdict
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.utils.rnn import pack_sequence
from torch.utils.data import default_collate

from brim.data import batch_length, slice_batch
from brim.data.batches.batch import first_tensor, is_container, map_children, map_leaves, select_rows
from brim.errors import DataError


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclasses.dataclass(frozen=True)
class Record:
    left: Any
    right: Any


SHARED = torch.arange(1000.0)  # longer than any batch here, as the labels are, so they belong to the batch as a whole
LEAVES = {
    "column": lambda samples: torch.tensor(samples, dtype=torch.float32),
    "rows": lambda samples: torch.tensor([[i, -i] for i in samples], dtype=torch.long).reshape(-1, 2),
    "texts": lambda samples: [f"text {i}" for i in samples],
    "scalar": lambda samples: torch.tensor(3.5),
    "shared": lambda samples: SHARED,
    "labels": lambda samples: [str(number) for number in range(100)],
    "name": lambda samples: "a name",
    "number": lambda samples: 7,
    "nothing": lambda samples: None,
}
CONTAINERS = {
    "list": lambda left, right: [left, right],
    "tuple": lambda left, right: (left, right),
    "dict": lambda left, right: {"left": left, "right": right},
    "named tuple": Pair,
    "dataclass": Record,
}
# A shape is a leaf's name or (container, left, right). The left one is a column, so that the length is known and so
# that no list of texts is as long as the batch by accident.
shapes = st.recursive(
    st.sampled_from(list(LEAVES)),
    lambda inner: st.tuples(st.sampled_from(list(CONTAINERS)), st.just("column"), inner),
    max_leaves=4,
)


def build(shape, samples):
    """The batch of this shape that holds ``samples``, made without slicing anything."""
    if isinstance(shape, str):
        return LEAVES[shape](samples)
    container, left, right = shape
    return CONTAINERS[container](build(left, samples), build(right, samples))


def same(left, right):
    if type(left) is not type(right):
        return False
    if isinstance(left, torch.Tensor):
        return left.dtype == right.dtype and torch.equal(left, right)
    if isinstance(left, Record):
        return same(left.left, right.left) and same(left.right, right.right)
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(same(a, b) for a, b in zip(left, right, strict=True))
    return bool(left == right)


@given(shapes, st.integers(1, 12), st.data())
def test_a_slice_is_the_batch_that_holds_those_samples(shape, length, data):
    shape = ("tuple", "column", shape)
    start = data.draw(st.integers(0, length))
    stop = data.draw(st.integers(start, length))
    batch = build(shape, range(length))
    assert batch_length(batch) == length
    assert same(slice_batch(batch, start, stop), build(shape, range(start, stop)))
    assert same(batch, build(shape, range(length)))


def test_slices_are_views():
    batch = {"x": torch.zeros(8, 3)}
    slice_batch(batch, 2, 4)["x"].fill_(1)
    assert batch["x"].sum(1).tolist() == [0, 0, 3, 3, 0, 0, 0, 0]


def test_texts_that_torch_collates_from_dicts_are_sliced():
    batch = default_collate([{"x": torch.tensor(i), "text": f"text {i}"} for i in range(4)])
    assert slice_batch(batch, 1, 3)["text"] == ["text 1", "text 2"]


def test_texts_that_torch_collates_from_tuples_are_sliced():
    batch = default_collate([(torch.tensor(i), f"text {i}") for i in range(4)])
    assert list(slice_batch(batch, 1, 3)[1]) == ["text 1", "text 2"]


def test_the_length_is_that_of_the_first_tensor_with_a_dimension():
    assert batch_length(torch.zeros(5, 2)) == 5
    assert batch_length([torch.tensor(1.0), {"name": "a", "x": Record(None, torch.zeros(6))}]) == 6


def test_a_packed_sequence_has_a_length_and_cannot_be_sliced():
    packed = pack_sequence([torch.zeros(4), torch.zeros(2), torch.zeros(1)])
    assert batch_length(packed) == 3
    with pytest.raises(DataError, match="PackedSequence"):
        slice_batch((packed, torch.zeros(3)), 0, 2)


@pytest.mark.parametrize("batch", ["text", 3, [], {"x": torch.tensor(1.0)}, [1, 2]])
def test_a_batch_without_a_batch_dimension_is_refused_by_its_type(batch):
    assert first_tensor(batch) is None
    with pytest.raises(DataError, match=type(batch).__name__):
        batch_length(batch)


@pytest.mark.parametrize(
    "container",
    [
        [1, 2],
        (1, 2),
        Pair(1, 2),
        Record(1, 2),
        {"a": 1, "b": 2},
        OrderedDict(b=1, a=2),
        defaultdict(list, a=1, b=2),
        torch.Size([1, 2]),
    ],
    ids=lambda container: type(container).__name__,
)
def test_containers_keep_their_type_when_their_values_are_mapped(container):
    mapped = map_children(lambda value: value + 10, container)
    assert type(mapped) is type(container)
    assert map_children(lambda value: value - 10, mapped) == container != mapped
    assert getattr(mapped, "default_factory", None) == getattr(container, "default_factory", None)


def test_a_list_of_ones_own_keeps_its_type():
    class Sentences(list):
        pass

    assert type(map_children(str, Sentences([1]))) is Sentences


@dataclasses.dataclass
class Halved:
    """Works on what it is given when it is made, and keeps more than its fields."""

    x: torch.Tensor
    y: torch.Tensor
    total: torch.Tensor = dataclasses.field(init=False)

    def __post_init__(self):
        self.x = self.x / 2
        self.total = self.x.sum(1)
        self.mask = self.x > 0


@dataclasses.dataclass(frozen=True)
class FrozenHalved:
    x: torch.Tensor

    def __post_init__(self):
        object.__setattr__(self, "x", self.x / 2)


@dataclasses.dataclass(slots=True)
class SlottedHalved:
    x: torch.Tensor

    def __post_init__(self):
        self.x = self.x / 2


@dataclasses.dataclass
class SubclassOfHalved(Halved):
    z: int = 3


@pytest.mark.parametrize(
    "kind", [Halved, FrozenHalved, SlottedHalved, SubclassOfHalved], ids=lambda kind: kind.__name__
)
def test_what_a_dataclass_does_when_it_is_made_happens_once(kind):
    x = torch.arange(8.0).reshape(4, 2)
    batch = kind(x, torch.zeros(4)) if issubclass(kind, Halved) else kind(x)
    part = slice_batch(batch, 1, 3)
    assert type(part) is kind
    assert torch.equal(part.x, x[1:3] / 2)
    assert torch.equal(map_leaves(lambda leaf: leaf, batch).x, x / 2)
    if issubclass(kind, Halved):
        assert torch.equal(part.total, x[1:3].sum(1) / 2)
        assert torch.equal(part.mask, x[1:3] > 0)  # not a field: kept, and sliced with the rest
    assert len(batch.x) == 4


class Scaled(dict):
    """Works on each value that is put in."""

    def __setitem__(self, key, value):
        super().__setitem__(key, value / 2)


class ScaledPair(Pair):
    def __new__(cls, left, right):
        return super().__new__(cls, left / 2, right)


class Boxes(list):
    def __init__(self, items, sizes):
        super().__init__(items)
        self.sizes = sizes


class ByAttribute(dict):
    def __init__(self, **values):
        super().__init__(**values)
        self.__dict__ = self


def scaled():
    made = Scaled()
    made["x"] = torch.ones(4)
    made.source = "camera"
    return made


def test_what_other_containers_do_when_they_are_made_or_filled_happens_once():
    mapped = slice_batch(scaled(), 0, 2)
    assert type(mapped) is Scaled
    assert mapped["x"].tolist() == [0.5, 0.5]
    assert mapped.source == "camera"
    assert slice_batch(ScaledPair(torch.ones(4), 0), 0, 2).left.tolist() == [0.5, 0.5]


def test_containers_with_a_constructor_of_their_own_keep_what_they_know():
    boxes = slice_batch(Boxes([torch.zeros(4)], sizes=[(2, 2)]), 0, 2)
    assert (type(boxes), len(boxes[0]), boxes.sizes) == (Boxes, 2, [(2, 2)])
    by_attribute = slice_batch(ByAttribute(x=torch.zeros(4)), 0, 2)
    assert by_attribute.x is by_attribute["x"]
    assert len(by_attribute.x) == 2


def test_outputs_and_encodings_of_transformers_stay_what_they_are():
    outputs = pytest.importorskip("transformers.modeling_outputs")
    encoding = pytest.importorskip("transformers").BatchEncoding({"input_ids": torch.zeros(4, 3)})
    sliced = slice_batch(outputs.BaseModelOutput(last_hidden_state=torch.zeros(4, 3)), 0, 2)
    assert len(sliced.last_hidden_state) == len(sliced["last_hidden_state"]) == len(sliced[0]) == 2
    assert len(slice_batch(encoding, 0, 2).input_ids) == 2
    assert len(encoding.input_ids) == 4


class LikeATensorDict(UserDict):
    """A mapping that knows its batch size and moves and slices itself."""

    def __init__(self, data, batch_size):
        super().__init__(data)
        self.batch_size = torch.Size(batch_size)

    def to(self, device):
        return LikeATensorDict({key: value.to(device) for key, value in self.data.items()}, self.batch_size)

    def __getitem__(self, index):
        if isinstance(index, slice | torch.Tensor):
            cut = {key: value[index] for key, value in self.data.items()}
            return LikeATensorDict(cut, [len(next(iter(cut.values())))])
        return self.data[index]


def test_a_mapping_that_slices_itself_does_so():
    batch = LikeATensorDict({"x": torch.arange(4)}, [4])
    assert batch_length(batch) == 4
    part = slice_batch((batch, torch.zeros(4)), 1, 3)[0]
    assert part["x"].tolist() == [1, 2]
    assert part.batch_size == (2,)
    assert select_rows((batch, torch.zeros(4)), torch.tensor([3, 0]))[0]["x"].tolist() == [3, 0]


class Graph:
    def to(self, device):
        return self


def test_an_object_with_tensors_that_nobody_can_slice_is_refused_by_its_type():
    with pytest.raises(DataError, match="a Graph cannot be split"):
        slice_batch((Graph(), torch.zeros(4)), 0, 2)
    with pytest.raises(DataError, match="a Graph cannot be split"):
        select_rows((Graph(), torch.zeros(4)), torch.tensor([0]))


def test_tensors_packed_sequences_and_classes_are_leaves():
    assert not any(is_container(leaf) for leaf in (torch.zeros(2), pack_sequence([torch.zeros(2)]), Record, "ab", None))


def test_leaves_are_reached_at_any_depth_in_order():
    seen = []
    map_leaves(seen.append, {"a": [1, (2, Record(3, {"b": 4}))], "c": Pair(5, None)})
    assert seen == [1, 2, 3, 4, 5, None]
