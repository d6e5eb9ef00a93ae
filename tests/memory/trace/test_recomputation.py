import pytest
import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

from brim.errors import ModelError
from brim.memory import forecast
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


def gpt2(**more):
    return GPT2LMHeadModel(GPT2Config(vocab_size=100, n_positions=64, n_embd=64, n_layer=3, n_head=2, **more))


def sentences(n):
    return (), {"input_ids": torch.ones(n, 64, dtype=torch.long), "labels": torch.ones(n, 64, dtype=torch.long)}


def test_each_block_more_takes_less_memory():
    sizes = [
        forecast(gpt2, sentences, batch_size=256, card="NVIDIA A10G", checkpointing=k).allocated for k in (None, 1, 2)
    ]
    assert sizes[0] > sizes[1] > sizes[2]


def test_a_cache_of_keys_and_values_is_not_filled_a_second_time():
    def allocated(use_cache):
        def model():
            return gpt2(use_cache=use_cache)

        return forecast(model, sentences, batch_size=256, card="NVIDIA A10G", checkpointing=True).allocated

    keys_and_values = 3 * 2 * 256 * 64 * 64 * 4
    # Once for all blocks, and in the second pass for the one that is computed again.
    assert allocated(True) <= allocated(False) + 1.4 * keys_and_values
