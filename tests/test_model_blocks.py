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
from brim.errors import ConfigError
from brim.memory.trace.recomputation import recompute_blocks
from brim.model_blocks import checkpointed_blocks, chosen_blocks, sharded_blocks


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
    forecast, trained = make(), make()
    recompute_blocks(forecast, True)
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


CHOICES = [
    (None, []),
    (False, []),
    ("auto", []),
    (True, ["0", "1", "2", "3"]),
    (3, ["0", "1", "2"]),
    (0.5, ["0", "1"]),
    (0.6, ["0", "1", "2"]),
    (1.0, ["0", "1", "2", "3"]),
    (["3", "1"], ["1", "3"]),
    (("2.0",), ["2.0"]),
]


def four():
    return nn.Sequential(*(layer() for _ in range(4)))


@pytest.mark.parametrize(("choice", "names"), CHOICES, ids=lambda value: str(value))
def test_a_choice_means_the_same_blocks_to_the_forecast_and_to_the_engine(choice, names):
    forecast, trained = four(), four()
    assert list(chosen_blocks(trained, choice)) == names
    recompute_blocks(forecast, choice)
    Checkpointing(trained).apply(choice)
    for model in (forecast, trained):
        assert names_of(model, [module for module in model.modules() if "forward" in vars(module)]) == names


@pytest.mark.parametrize("choice", [0, -1, 1.5, 0.0, "yes", "", [], [3], {"a": 1}, float("nan")], ids=repr)
def test_what_is_no_choice_of_blocks_is_refused(choice):
    with pytest.raises(ConfigError, match="is not known; use True, False, 'auto', a number of blocks"):
        chosen_blocks(four(), choice)


@pytest.mark.parametrize(
    ("choice", "sentence"),
    [
        (5, "more than the 4 blocks"),
        (["7"], "names '7', which Sequential does not have; did you mean"),
        (["1", "1.0"], "'1.0', which lies within '1'"),
    ],
)
def test_blocks_that_the_model_does_not_have_are_refused(choice, sentence):
    with pytest.raises(ConfigError, match=sentence):
        chosen_blocks(four(), choice)


def test_a_number_of_blocks_needs_a_list_of_them():
    with pytest.raises(ConfigError, match="has none; name the modules"):
        chosen_blocks(nn.Linear(2, 2), 1)


def test_another_choice_replaces_the_one_before():
    model = four()
    blocks = Checkpointing(model)
    for choice, names in CHOICES[3:]:
        blocks.apply(choice)
        assert names_of(model, [module for module in model.modules() if "forward" in vars(module)]) == names
    blocks.remove()
    assert not blocks.is_on
