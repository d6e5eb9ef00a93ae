"""Whether what is computed for a sample depends on the others beside it."""

import pytest
import torch
from helpers.faults import ran_out
from torch import nn

from brim.engine.splitting.same_rows import rows_differ

X = torch.randn(12, 3, generator=torch.Generator().manual_seed(0))
torch.manual_seed(0)
NET = nn.Linear(3, 2)


@pytest.mark.parametrize(
    "compute",
    [
        lambda x: x * 2,
        NET,
        lambda x: {"logits": NET(x), "class": NET(x).argmax(1)},
        lambda x: (NET(x).bfloat16(), x > 0),
        lambda x: x.masked_fill(x > 0, torch.nan),
        lambda x: x[:, :0],
    ],
    ids=["product", "layer", "dict", "half", "nan", "empty"],
)
def test_rows_of_their_own_do_not_differ(compute):
    assert not rows_differ(compute, X)


@pytest.mark.parametrize(
    "compute",
    [
        lambda x: x - x.mean(0),
        lambda x: x.sum(),
        lambda x: x.softmax(0),
        lambda x: x.argsort(0),
        lambda x: x[x[:, 0] > 0],
        lambda x: {"fine": x * 2, "mixed": x.cumsum(0)},
        lambda x: x / 0 if len(x) == 12 else 1 // 0,
    ],
    ids=["centred", "scalar", "softmax", "order", "chosen", "one of two", "raises"],
)
def test_rows_that_depend_on_others_differ(compute):
    assert rows_differ(compute, X)


def test_results_that_are_cut_to_the_longest_of_a_batch_differ():
    lengths = torch.tensor([1, 2, 3, 1, 5, 1, 2, 1, 1])

    def longest(batch):
        return torch.arange(9)[: int(batch.max())].expand(len(batch), -1)

    assert rows_differ(longest, lengths)


def test_rows_that_compare_a_sample_with_each_of_the_others_differ():
    assert rows_differ(lambda x: x @ x.T, X)


def test_fewer_rows_are_tried_where_memory_runs_out():
    def compute(x):
        if len(x) > 2:
            raise ran_out()
        return x - x.mean(0)

    assert rows_differ(compute, X)


def test_a_single_sample_stands_for_itself():
    assert not rows_differ(lambda x: x - x.mean(0), X[:1])


def test_batches_are_not_changed_nor_is_anything_kept():
    seen, x = [], X.clone()

    def double(part):
        seen.append(1)
        return part.mul_(2)

    rows_differ(double, x, double)
    assert torch.equal(x, X) and not seen
