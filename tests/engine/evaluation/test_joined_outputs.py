from typing import NamedTuple

import torch

from brim.engine.evaluation.joined_outputs import PartOutput, join, to_host


class Two(NamedTuple):
    mean: torch.Tensor
    spread: torch.Tensor


def parts(*values_and_sizes):
    return [PartOutput(value, size) for value, size in values_and_sizes]


def test_tensors_are_joined_along_the_samples_though_the_last_batch_is_shorter():
    joined = join(parts((torch.ones(3, 2), 3), (torch.zeros(1, 2), 1)))
    assert joined.shape == (4, 2) and joined.sum() == 6


def test_tensors_of_different_lengths_are_a_list_of_samples_without_padding():
    joined = join(parts((torch.ones(2, 5, 3), 2), (torch.zeros(1, 7, 3), 1)))
    assert [tuple(row.shape) for row in joined] == [(5, 3), (5, 3), (7, 3)]


def test_so_is_only_the_key_that_differs():
    first, last = {"a": torch.ones(2, 5), "b": torch.ones(2)}, {"a": torch.ones(1, 4), "b": torch.ones(1)}
    joined = join(parts((first, 2), (last, 1)))
    assert [len(row) for row in joined["a"]] == [5, 5, 4]
    assert joined["b"].shape == (3,)


def test_one_number_a_batch_is_stacked():
    assert join(parts((torch.tensor(1.0), 3), (torch.tensor(2.0), 3))).tolist() == [1, 2]


def test_what_has_no_dimension_of_samples_and_differs_stays_one_by_batch():
    joined = join(parts((torch.ones(7, 2), 3), (torch.ones(5, 4), 3)))
    assert [tuple(one.shape) for one in joined] == [(7, 2), (5, 4)]


def test_containers_are_kept():
    joined = join(parts((Two(torch.ones(2), torch.zeros(2)), 2), (Two(torch.ones(1), torch.zeros(1)), 1)))
    assert type(joined) is Two and joined.mean.shape == (3,)
    pairs = join(parts(([torch.ones(3), torch.zeros(3)], 3), ([torch.ones(1), torch.zeros(1)], 1)))
    assert [len(column) for column in pairs] == [4, 4]


def test_a_list_with_something_for_each_sample_is_one_list():
    boxes = [[{"boxes": torch.ones(k, 4)} for k in counts] for counts in ([0, 3], [1])]
    joined = join(parts((boxes[0], 2), (boxes[1], 1)))
    assert [len(one["boxes"]) for one in joined] == [0, 3, 1]
    assert join(parts((["a", "b"], 2), (["c"], 1))) == ["a", "b", "c"]


def test_two_columns_of_batches_of_two_are_columns():
    joined = join(parts(([torch.ones(2), torch.zeros(2)], 2), ([torch.ones(2), torch.zeros(2)], 2)))
    assert [column.tolist() for column in joined] == [[1, 1, 1, 1], [0, 0, 0, 0]]


def test_outputs_that_are_of_different_kinds_stay_one_by_batch():
    assert join(parts(({"a": 1}, 1), ({"b": 2}, 1))) == [{"a": 1}, {"b": 2}]
    assert join(parts((None, 1), ("x", 1))) == [None, "x"]


def test_bf16_is_handed_over_as_numbers_that_numpy_knows():
    x = torch.randn(4).bfloat16().requires_grad_()
    moved = to_host({"a": x, "n": 3})
    assert moved["a"].numpy().tolist() == x.tolist() and moved["n"] == 3
    assert to_host(torch.ones(1).half()).dtype == torch.float16
