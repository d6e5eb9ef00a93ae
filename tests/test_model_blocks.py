"""Which modules of a model are its blocks, for the forecast and for the engine."""

import pytest
from torch import nn
from transformers import (
    BertConfig,
    BertForMaskedLM,
    GPT2Config,
    GPT2LMHeadModel,
    T5Config,
    T5ForConditionalGeneration,
)

from brim.engine.oom.activation_checkpointing import Checkpointing
from brim.memory.planning.remedies import checkpointed
from brim.model_blocks import checkpointed_blocks, sharded_blocks


def layer():
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU())


def gpt2():
    return GPT2LMHeadModel(GPT2Config(n_layer=2, n_embd=8, n_head=2, vocab_size=11, n_positions=8))


def bert():
    shape = {"hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 8}
    return BertForMaskedLM(BertConfig(vocab_size=11, num_hidden_layers=2, **shape))


def t5():
    return T5ForConditionalGeneration(T5Config(vocab_size=11, d_model=8, d_kv=4, d_ff=8, num_layers=2, num_heads=2))


@pytest.mark.parametrize(
    ("model", "count"),
    [
        (nn.Linear(2, 2), 0),
        (nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2)), 0),
        (nn.Sequential(nn.Linear(4, 4), layer(), layer()), 2),
        (nn.ModuleDict({"body": nn.ModuleList([layer() for _ in range(3)]), "head": nn.Linear(4, 1)}), 3),
        (nn.Sequential(nn.Sequential(layer(), layer()), nn.Sequential(layer(), layer())), 2),
        (
            nn.ModuleDict({"encoder": nn.ModuleList([layer(), layer()]), "decoder": nn.ModuleList([layer(), layer()])}),
            4,
        ),
        (nn.ModuleList([layer()]), 0),
    ],
    ids=["leaf", "leaves", "mixed", "named", "nested", "two lists", "alone"],
)
def test_the_outermost_lists_of_equal_blocks_are_found(model, count):
    assert len(checkpointed_blocks(model)) == count


MODELS = [
    (gpt2, ["transformer.h.0", "transformer.h.1"]),
    (bert, ["bert.encoder.layer.0", "bert.encoder.layer.1"]),
    (t5, ["encoder.block.0", "encoder.block.1", "decoder.block.0", "decoder.block.1"]),
    (lambda: nn.Sequential(nn.Linear(4, 4), layer(), layer()), ["1", "2"]),
]
NAMES = ["GPT-2", "BERT", "T5", "Sequential"]


def names_of(model, blocks):
    return [name for name, module in model.named_modules() if module in blocks]


@pytest.mark.parametrize(("make", "names"), MODELS, ids=NAMES)
def test_a_plan_forecasts_the_checkpointing_that_is_applied(make, names):
    forecast, trained = checkpointed(make)(), make()
    assert names_of(forecast, [module for module in forecast.modules() if "forward" in vars(module)]) == names
    Checkpointing(trained).apply()
    assert names_of(trained, [module for module in trained.modules() if "forward" in vars(module)]) == names


@pytest.mark.parametrize(("make", "names"), MODELS[:3], ids=NAMES[:3])
def test_transformers_are_sharded_by_the_same_blocks(make, names):
    model = make()
    assert names_of(model, sharded_blocks(model)) == names


def test_only_what_is_alike_and_shares_nothing_is_sharded_apart():
    model = nn.Sequential(nn.Sequential(layer(), nn.ReLU(), layer()), nn.Sequential(layer(), nn.Linear(4, 4)))
    assert names_of(model, sharded_blocks(model)) == ["0.0", "0.2"]
    model[0][0][0].weight = model[1][1].weight
    assert sharded_blocks(model) == []
    assert sharded_blocks(nn.Sequential(layer(), layer())) == []  # the root gathers those itself
