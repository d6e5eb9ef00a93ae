import pytest
import torch
from torch import nn

from brim.errors import ModelError
from brim.memory.trace.recomputation import recompute_blocks


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.calls = nn.Linear(4, 4), 0

    def forward(self, x):
        self.calls += 1
        return x + self.layer(x).tanh()


class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.blocks, self.head = nn.ModuleList(Block() for _ in range(3)), Block()

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def trained(choice):
    """The model after one backward pass, checkpointed or, with None, plain."""
    model = Deep()
    if choice is not None:
        recompute_blocks(model, choice)
    model(torch.ones(2, 4)).sum().backward()
    return model


@pytest.mark.parametrize(
    ("choice", "calls"), [(True, [2, 2, 2, 1]), (["head"], [1, 1, 1, 2]), (["blocks.1"], [1, 2, 1, 1])]
)
def test_the_chosen_blocks_are_computed_again_in_the_backward_pass_and_gradients_are_the_same(choice, calls):
    model, plain = trained(choice), trained(None)
    assert [block.calls for block in (*model.blocks, model.head)] == calls
    for one, other in zip(model.parameters(), plain.parameters(), strict=True):
        assert torch.equal(one.grad, other.grad)


def test_a_model_without_lists_of_blocks_is_refused_with_what_to_write():
    with pytest.raises(ModelError, match=r"no lists of blocks to recompute; name modules"):
        recompute_blocks(nn.Linear(2, 2), True)
