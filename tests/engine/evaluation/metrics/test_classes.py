"""Classes of real models, in the shapes and with the shift that their own loss has."""

import math

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertForTokenClassification,
    GPT2Config,
    GPT2LMHeadModel,
    T5Config,
    T5ForConditionalGeneration,
)

import brim
from brim.engine.evaluation.metrics.classes import is_causal
from brim.errors import ConfigError

IDS = torch.randint(0, 50, (11, 9), generator=torch.Generator().manual_seed(1))
LABELS = torch.where(torch.rand(11, 9, generator=torch.Generator().manual_seed(2)) < 0.3, -100, IDS)
BERT = {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}


def gpt2():
    config = GPT2Config(vocab_size=50, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0)
    return GPT2LMHeadModel(config)


def with_adapters():
    return get_peft_model(gpt2(), LoraConfig(target_modules=["c_attn"], task_type="CAUSAL_LM", fan_in_fan_out=True))


def t5():
    config = T5Config(vocab_size=50, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2, decoder_start_token_id=0)
    return T5ForConditionalGeneration(config)


def evaluated(model, data, metrics):
    run = brim.Trainer(model, brim.Loader(data, batch_size=4), device="cpu")
    found = run.evaluate(brim.Loader(data, batch_size=4), metrics=metrics)
    model.eval()
    with torch.no_grad():
        return found, model(**data)


@pytest.mark.parametrize("make", [gpt2, with_adapters, lambda: torch.compile(gpt2(), backend="eager")])
def test_causal_models_are_judged_by_the_next_token(make):
    torch.manual_seed(0)
    found, output = evaluated(make(), {"input_ids": IDS, "labels": LABELS}, ["accuracy", "perplexity"])
    counted = LABELS[:, 1:] != -100
    hits = output.logits.argmax(-1)[:, :-1] == LABELS[:, 1:]
    assert found["accuracy"] == pytest.approx(hits[counted].double().mean().item())
    assert found["perplexity"] == pytest.approx(math.exp(output.loss), rel=1e-5)


@pytest.mark.parametrize("make", [t5, lambda: BertForTokenClassification(BertConfig(**BERT, num_labels=50))])
def test_other_token_models_by_the_token_itself(make):
    torch.manual_seed(0)
    found, output = evaluated(make(), {"input_ids": IDS, "labels": LABELS}, "accuracy")
    hits = (output.logits.argmax(-1) == LABELS)[LABELS != -100]
    assert found["accuracy"] == pytest.approx(hits.double().mean().item())


def test_a_classifier_by_its_class():
    torch.manual_seed(0)
    data = {"input_ids": IDS, "labels": torch.arange(11) % 3}
    found, output = evaluated(BertForSequenceClassification(BertConfig(**BERT, num_labels=3)), data, ["accuracy", "f1"])
    assert found["accuracy"] == pytest.approx((output.logits.argmax(1) == data["labels"]).double().mean().item())


def test_a_model_that_does_not_tell_is_refused():
    class Unknown(nn.Identity):
        config = GPT2Config()

    with pytest.raises(ConfigError, match="Unknown at a position are for the label there or for the next one"):
        is_causal(Unknown())
