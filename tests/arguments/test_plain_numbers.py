import numpy as np
import pytest
import torch

from brim.arguments.plain_numbers import as_plain


@pytest.mark.parametrize(
    ("value", "plain"),
    [(np.int64(2), 2), (np.float32(0.5), 0.5), (np.bool_(True), True), (np.array(3), 3), (torch.tensor(4), 4)],
)
def test_a_single_number_becomes_pythons(value, plain):
    assert as_plain(value) == plain
    assert type(as_plain(value)) is type(plain)


@pytest.mark.parametrize(
    "value",
    [torch.ones(1), np.ones(1), torch.ones((), requires_grad=True), torch.ones((), device="meta"), "x", None, [1]],
)
def test_anything_else_stays_what_it_is(value):
    assert as_plain(value) is value
