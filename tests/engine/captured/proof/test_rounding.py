"""What rounding explains, by the numbers that are computed with and the operations that follow each other."""

import pytest
import torch
from torch import nn

from brim.engine.captured.proof.rounding import EPSILONS, LEAST_OPERATIONS, Rounding, chain_of, rounding_of
from brim.engine.components.precision import Precision

CPU = torch.device("cpu")


def deep(layers):
    return nn.Sequential(*[nn.Linear(4, 4) for _ in range(layers)])


def test_shorter_numbers_and_longer_chains_allow_more():
    shares = [Rounding(numbers, 100).share for numbers in ("fp32", "fp16", "bf16")]
    assert shares == sorted(shares) and len(set(shares)) == 3
    assert Rounding("bf16", 400).share > Rounding("bf16", 100).share


@pytest.mark.parametrize("numbers", EPSILONS)
def test_what_is_allowed_is_far_less_than_another_dropout_mask_makes(numbers):
    """A tenth of the neurons dropped otherwise changes a gradient by some 40 % of its norm."""
    assert Rounding(numbers, 1000).share < 0.11


def test_the_chain_of_operations_is_the_longest_one():
    x = torch.ones(4, requires_grad=True)
    long = x
    for _ in range(50):
        long = long * 2
    length, kinds = chain_of((long + x).sum())
    assert 50 <= length <= 54 and "MulBackward0" in kinds


def test_a_loop_of_a_recurrent_cell_counts_each_of_its_steps():
    cell, state = nn.RNNCell(4, 4), torch.zeros(2, 4)
    for _ in range(200):
        state = cell(torch.ones(2, 4), state)
    found = rounding_of(cell, Precision("32", CPU), state.sum())
    assert found.operations > 400


def test_a_loss_without_a_graph_is_judged_by_its_layers():
    assert chain_of(torch.ones(())) == (0, set())
    assert rounding_of(deep(100), Precision("32", CPU)).operations == 100
    assert rounding_of(deep(1), Precision("32", CPU)).operations == LEAST_OPERATIONS


@pytest.mark.parametrize(
    ("precision", "dtype", "numbers"),
    [("32", torch.float32, "fp32"), ("bf16", torch.float32, "bf16"), ("32", torch.bfloat16, "bf16")],
)
def test_the_coarsest_numbers_decide(precision, dtype, numbers):
    assert rounding_of(deep(1).to(dtype), Precision(precision, CPU)).numbers == numbers


def test_it_is_said_in_a_few_words():
    assert str(Rounding("fp32", 300)) == "fp32 rounding allows 7e-06"
