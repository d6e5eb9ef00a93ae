import math

import pytest
import torch

from brim.engine.evaluation.metrics.summed_metric import (
    accumulation_dtype,
    added,
    ratio,
    sums_of_masks,
    sums_on_host,
    total_and_count,
)

CPU = torch.device("cpu")


def test_a_ratio_of_nothing_is_no_number():
    assert ratio([3.0, 4.0]) == 0.75 and math.isnan(ratio([0.0, 0.0]))


@pytest.mark.parametrize("count", [3, torch.tensor(3), torch.tensor(3, dtype=torch.int32)])
def test_sums_are_kept_in_64_bits_where_the_device_has_them(count):
    made = total_and_count(torch.tensor(2.0**24 + 2, dtype=torch.float32), count)
    assert made.dtype == accumulation_dtype(CPU) == torch.float64 and made.tolist() == [2**24 + 2, 3]
    assert accumulation_dtype(torch.device("mps")) == torch.float32


def test_masks_of_any_shape_are_counted_each():
    first, second = torch.tensor([[True, False, True], [True, True, False]]), torch.zeros(2, 3, dtype=torch.bool)
    made = sums_of_masks(first, second)
    assert made.dtype == torch.float64 and made.tolist() == [4, 0]
    assert sums_of_masks(torch.tensor(True)).tolist() == [1]
    assert sums_of_masks(torch.zeros(0, 3, dtype=torch.bool)).tolist() == [0]


@pytest.mark.parametrize(
    ("sums", "part", "expected"),
    [
        (None, [1.0, 2.0], [1, 2]),
        ([], [1.0], [1]),
        ([1.0, 2.0], [10.0, 20.0], [11, 22]),
        ([1.0], [10.0, 20.0], [11, 20]),
        ([1.0, 2.0, 3.0], [10.0], [11, 2, 3]),
    ],
)
def test_a_class_that_was_not_seen_before_counts_as_zero(sums, part, expected):
    sums = None if sums is None else torch.tensor(sums)
    assert added(sums, torch.tensor(part)).tolist() == expected


def test_several_vectors_are_read_at_once_and_come_apart_again():
    vectors = [torch.tensor([1.0, 2.0]), torch.tensor([]), torch.tensor([3.0])]
    assert sums_on_host(vectors) == [[1, 2], [], [3]] and sums_on_host([]) == []
