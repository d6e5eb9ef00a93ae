"""Blocks that a traced model computes again."""

import pytest
import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

from brim.errors import ModelError
from brim.memory import forecast
from brim.memory.trace.recomputation import recompute_blocks


def gpt2(**more):
    return GPT2LMHeadModel(GPT2Config(vocab_size=100, n_positions=64, n_embd=64, n_layer=3, n_head=2, **more))


def sentences(n):
    return (), {"input_ids": torch.ones(n, 64, dtype=torch.long), "labels": torch.ones(n, 64, dtype=torch.long)}


def test_all_blocks_of_a_model_without_any_are_refused():
    with pytest.raises(ModelError, match="no lists of blocks"):
        recompute_blocks(nn.Linear(2, 2), True)
    recompute_blocks(nn.Linear(2, 2), None)


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
