import collections
import enum

import numpy as np
import pytest
import torch

from brim.data.cache.packed_sample import pack, same_sample
from brim.errors import DataError


class Colour(enum.IntEnum):
    RED = 1


class Text(str):
    pass


def same(left, right):
    return same_sample(pack(left, 0), pack(right, 0))


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (object(), "object"),
        ({1, 2}, "set"),
        (1 + 2j, "complex"),
        (Text("a"), "Text"),
        (Colour.RED, "Colour"),
        (collections.OrderedDict(a=1), "OrderedDict"),
        ({(1, 2): 3}, "key of type tuple"),
        (np.array(["a"]), "ndarray"),
        (np.array([1.0], dtype=">f8"), "ndarray"),
        (torch.nn.Parameter(torch.ones(2)), "Parameter"),
        (torch.ones(2, requires_grad=True), "requires a gradient"),
        (torch.ones(2).to_sparse(), "sparse_coo"),
        (torch.ones(2, device="meta"), "meta"),
    ],
)
def test_what_cannot_be_stored_is_refused_by_its_type_and_the_samples_index(value, name):
    with pytest.raises(DataError, match=rf"sample 17 holds .*{name}"):
        pack({"inside": [torch.zeros(1), value]}, 17)


def test_a_sample_that_holds_itself_is_refused():
    sample = [torch.zeros(1)]
    sample.append(sample)
    with pytest.raises(DataError, match="sample 3 holds itself"):
        pack(sample, 3)


@pytest.mark.parametrize(
    ("left", "right"),
    [(1, True), (1, 1.0), ("a", b"a"), ((1, "a"), [1, "a"]), (0.0, None), (torch.ones(1), np.ones(1, dtype="f4"))],
)
def test_samples_of_other_types_are_not_the_same(left, right):
    assert not same(left, right)
    assert same(left, left)


def test_floats_are_the_same_up_to_rounding_and_whole_numbers_exactly():
    x = torch.randn(100)
    assert same(x, x * (1 + 1e-7))
    assert not same(x, x * 1.001)
    assert same(x.bfloat16(), (x * 1.004).bfloat16())
    assert not same(torch.tensor([1000000]), torch.tensor([1000001]))


def test_zeros_are_the_same_whatever_their_sign():
    assert same(torch.zeros(2), -torch.zeros(2))


def test_a_list_of_texts_is_one_leaf_and_a_tuple_stays_one():
    """JSON, in which lists are kept, has no tuples."""
    assert len(pack(["a", "b"], 0).values) == 1
    assert len(pack(("a", "b"), 0).values) == 2


def test_values_that_are_not_finite_must_be_the_same_ones():
    nan, inf = float("nan"), float("inf")
    assert same(torch.tensor([1.0, nan, inf]), torch.tensor([1.0, nan, inf]))
    assert not same(torch.tensor([1.0, nan]), torch.tensor([1.0, inf]))
    assert not same(torch.tensor([1.0, inf]), torch.tensor([1.0, -inf]))
    assert not same(torch.tensor([1.0, nan]), torch.tensor([1.0, 2.0]))
    assert not same(nan, 1.0)


def test_values_of_other_shapes_are_not_the_same():
    assert not same(torch.zeros(2, 3), torch.zeros(3, 2))
    assert not same([1, 2], [1, 2, 3])


def test_a_tensor_counts_by_its_content_whatever_its_strides_are():
    x = torch.arange(12.0).reshape(3, 4)
    z = torch.complex(x, x)
    views = [x.t(), x[:, 1], x[:1, :1].t(), x[1:2, 2], x[::2, ::3], x[:0], x[0].expand(5, 4), z.conj(), z.conj().imag]
    for view in views:
        copy = torch.empty(view.shape, dtype=view.dtype).copy_(view)
        assert pack(view, 0) == pack(copy, 0)


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), float("-inf")])
def test_what_is_no_finite_number_is_the_same_as_itself_only(odd):
    for other in (7.0, 0.0, torch.finfo(torch.float32).max, float("inf") if odd != float("inf") else float("nan")):
        assert not same(torch.tensor([1.0, odd]), torch.tensor([1.0, other]))
        assert not same(torch.tensor([1.0, other]), torch.tensor([1.0, odd]))
    assert same(torch.tensor([1.0, odd]), torch.tensor([1.0 + 1e-7, odd]))
