import numpy as np
import pytest
import torch

from brim.data.listed import LOOKED_AT, are_samples, describe

X = torch.zeros(8, 3)


@pytest.mark.parametrize(
    "item",
    ["text", 3, np.float32(1.0), torch.tensor(2), (X, 3), (X, torch.tensor(1)), (torch.zeros(8), torch.zeros(1)),
     {"image": X, "label": np.int64(3)}],
    ids=str,
)  # fmt: skip
def test_what_can_be_nothing_but_a_sample(item):
    assert are_samples([item])


@pytest.mark.parametrize("item", [X, (X, torch.zeros(8)), {"x": X}, (X, torch.zeros(8, 2)), (X, torch.zeros(2, 2))])
def test_what_may_be_a_batch_is_one(item):
    assert not are_samples([item])


def test_a_few_of_either_end_are_looked_at_and_one_batch_among_them_is_enough():
    samples = [(torch.zeros(8), 1)] * 20
    assert are_samples(samples)
    assert not are_samples([*samples, (X, torch.zeros(8))])
    assert are_samples([*samples[:LOOKED_AT], X, *samples[:LOOKED_AT]])
    assert not are_samples([])


def test_ready_batches_are_described_with_what_to_do_where_they_were_samples():
    assert describe([X] * 1200).startswith("1,200 ready batches") and "brim.Loader(samples" in describe([X])
