import numpy as np
import pytest
import torch

from brim.data.columns.half_columns import refuse_half_columns
from brim.errors import DataError

X = torch.ones(4, 2)


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ((X, None), "^y is None; each part"),
        ((None, X), "^X is None; each part"),
        ((X, torch.tensor(1)), "^y is a Tensor without rows; each part"),
        ((X, np.ones(4), "label"), "^2 is a str; each part"),
        ({"x": X, "names": ["a", "b"], "n": 3}, r"^'names' is a list of 2 \(str\), 'n' is an int; each part"),
    ],
)
def test_the_parts_that_are_no_columns_are_named(data, told):
    with pytest.raises(DataError, match=told):
        refuse_half_columns(data)


def test_two_lists_of_as_many_items_may_mean_either():
    with pytest.raises(DataError, match=r"\(torch.tensor\(X\), torch.tensor\(y\)\)"):
        refuse_half_columns(([1.0, 2.0, 3.0], [0, 1, 0]))


@pytest.mark.parametrize(
    "data",
    [
        ((X, X), (X, X)),  # ready batches
        ([X, 1], [X, 2], [X, 3]),  # samples
        [X, None],  # no tuple
        {"train": [1, 2]},  # nothing with rows: told of otherwise
        ([1, 2], [3, 4]),  # two samples of two numbers
    ],
    ids=["batches", "samples", "list", "dict", "numbers"],
)
def test_what_may_be_meant_so_is_left_alone(data):
    assert refuse_half_columns(data) is None  # and raises nothing
