"""Windows of batches: which tensors they hold, which of them a graph can be shared by, which are refused."""

from collections import UserDict, namedtuple
from dataclasses import dataclass

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given
from torch import Tensor

from brim.data.batches.batch import map_leaves
from brim.engine.captured.inputs import alike_copy, check_window, own_copy, read_window
from brim.engine.captured.report import Refusal

Pair = namedtuple("Pair", "x y")
OtherPair = namedtuple("OtherPair", "x y")


@dataclass
class Rows:
    x: Tensor
    y: Tensor


@dataclass
class OtherRows:
    x: Tensor
    y: Tensor


class OnTheCard(Tensor):
    """A tensor that says it is on the GPU, for checks that look no further."""

    is_cuda = True


def x_and_y(length=4):
    return torch.randn(length, 3), torch.zeros(length, dtype=torch.int64)


def key_of(*window):
    return read_window(window)[1]


KINDS = {
    "tuple": lambda x, y: (x, y),
    "list": lambda x, y: [x, y],
    "dict": lambda x, y: {"x": x, "y": y},
    "named tuple": Pair,
    "dataclass": Rows,
    "mapping": lambda x, y: UserDict(x=x, y=y),
    "nested": lambda x, y: ({"a": [x]}, (y, None)),
    "with plain values": lambda x, y: {"x": x, "name": "train", "scale": 0.5, "y": y},
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_tensors_come_in_order_from_any_kind_of_batch(kind):
    (x, y), (z, w) = x_and_y(), x_and_y(2)
    tensors, _ = read_window([kind(x, y), kind(z, w)])
    assert [id(tensor) for tensor in tensors] == [id(tensor) for tensor in (x, y, z, w)]


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_other_values_of_the_same_shape_have_the_same_key(kind):
    one, two = key_of(kind(*x_and_y())), key_of(kind(*x_and_y()))
    assert one == two and hash(one) == hash(two)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_another_shape_or_type_or_length_of_the_window_has_another_key(kind):
    x, y = x_and_y()
    keys = {
        key_of(kind(x, y)),
        key_of(kind(x[:3], y[:3])),
        key_of(kind(x[:, :2], y)),
        key_of(kind(x.double(), y)),
        key_of(kind(x, y), kind(x, y)),
    }
    assert len(keys) == 5


@pytest.mark.parametrize(
    "other",
    [
        lambda x, y: (y, x),
        lambda x, y: (x, y, None),
        lambda x, y: (x, (y,)),
        lambda x, y: ((x, y),),
        lambda x, y: {"x": x, "y": y},
        lambda x, y: Rows(x, y),
        lambda x, y: (x, y, 1),
    ],
)
def test_another_structure_has_another_key(other):
    x, y = x_and_y()
    assert key_of((x, y)) != key_of(other(x, y))


def test_names_in_a_dictionary_count_with_their_order():
    x = torch.zeros(4)
    assert key_of({"a": x, "b": x}) != key_of({"b": x, "a": x})
    assert key_of({"a": x, "b": x}) != key_of({"a": x, "c": x})


@pytest.mark.parametrize(("one", "two"), [(1, 2), ("a", "b"), (0.5, 0.25), (None, "a"), (True, False), (b"a", b"b")])
def test_plain_values_count_by_what_they_are(one, two):
    x = torch.zeros(4)
    assert key_of((x, one)) == key_of((x, one))
    assert key_of((x, one)) != key_of((x, two))


def test_dataclasses_count_by_their_type():
    x, y = x_and_y()
    assert key_of(Rows(x, y)) != key_of(OtherRows(x, y))


def test_named_tuples_count_by_their_type():
    x, y = x_and_y()
    assert key_of(Pair(x, y)) != key_of(OtherPair(x, y))


def test_names_in_a_mapping_count_with_their_order():
    """transformers' BatchEncoding is one: two tensors of one shape would change places."""
    x = torch.zeros(4)
    assert key_of(UserDict(a=x, b=x)) != key_of(UserDict(b=x, a=x))


def test_a_number_is_not_taken_for_the_length_of_a_list():
    x = torch.zeros(4)
    assert key_of((1, [x])) != key_of(([1], x))


def test_strangers_count_by_identity():
    x, stranger, other = torch.zeros(4), np.zeros(2), np.zeros(2)
    assert key_of((x, stranger)) == key_of((x, stranger))
    assert key_of((x, stranger)) != key_of((x, other))


@given(st.lists(st.integers(0, 5), max_size=4), st.sampled_from(list(KINDS)), st.booleans())
def test_a_copy_has_the_same_values_and_key_in_memory_of_its_own(lengths, kind, requires_grad):
    batches = [KINDS[kind](*x_and_y(length)) for length in lengths]
    tensors, key = read_window(batches)
    for tensor in tensors:
        tensor.requires_grad_(requires_grad and tensor.is_floating_point())
    copies, copied_key = read_window(own_copy(batches))
    assert copied_key == key
    for copy, tensor in zip(copies, tensors, strict=True):
        assert torch.equal(copy, tensor) and not copy.requires_grad
        assert copy.numel() == 0 or copy.data_ptr() != tensor.data_ptr()


@pytest.mark.parametrize("kind", [Pair, Rows, KINDS["mapping"]])
def test_a_copy_keeps_the_type_of_its_batch(kind):
    batch = kind(*x_and_y())
    assert type(own_copy([batch])[0]) is type(batch)


def on_the_card(batch):
    return map_leaves(lambda leaf: leaf.as_subclass(OnTheCard) if isinstance(leaf, Tensor) else leaf, batch)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_batches_of_tensors_and_plain_values_on_the_gpu_are_accepted(kind):
    check_window([on_the_card(kind(*x_and_y()))])


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_tensor_that_is_not_on_the_gpu_is_refused(kind):
    x, y = x_and_y()
    with pytest.raises(Refusal, match="not on the GPU"):
        check_window([on_the_card(kind(x, y)), kind(on_the_card(x), y)])


def test_sparse_tensors_are_refused():
    class Sparse(OnTheCard):
        is_sparse = True

    with pytest.raises(Refusal, match="sparse or nested"):
        check_window([torch.eye(3).as_subclass(Sparse)])


@pytest.mark.parametrize("stranger", [np.zeros(2), np.float64(1.0), {1}, object(), 1j])
def test_what_a_graph_cannot_be_fed_with_is_refused_by_its_type(stranger):
    with pytest.raises(Refusal, match=f"a batch holds an? {type(stranger).__name__}"):
        check_window([(on_the_card(torch.zeros(2)), {"more": [stranger]})])


def test_tensors_that_are_one_are_one_in_a_copy_that_is_alike():
    one, two = torch.ones(2), torch.ones(2)
    first, second, third = alike_copy([(one, two, one)])[0]
    assert first is third and first is not second and first is not one
