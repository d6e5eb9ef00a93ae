import sys

import pytest
import torch
from transformers import BertConfig, BertModel, GPT2Config, GPT2Model, LlamaConfig, LlamaModel

from brim.errors import ConfigError, DataError
from brim.workloads.recommender.encoders.loading import LoadedEncoder, from_parts, load_encoder, read_trial
from brim.workloads.recommender.text_encoder import TextEncoder, Tokens

SMALL = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 99}
TEXTS = ["a text", "b", "one that is longer"]


def gpt2():
    return GPT2Model(GPT2Config(vocab_size=99, n_embd=16, n_layer=2, n_head=2, n_positions=64))


def bert():
    return BertModel(BertConfig(**SMALL))


def llama():
    return LlamaModel(LlamaConfig(**SMALL, num_key_value_heads=1))


def loaded(model):
    """A model of transformers that reads the bytes of a text, in a vocabulary of 99."""
    return LoadedEncoder(model, lambda text: [byte % 98 + 1 for byte in text.encode()], None, 64, 0)


@pytest.mark.parametrize(("build", "is_causal"), [(gpt2, True), (llama, True), (bert, False)])
def test_a_trial_tells_decoders_from_encoders(build, is_causal):
    model = build().train()
    reading = read_trial("name", model)
    assert (reading.width, reading.is_causal) == (16, is_causal)
    assert model.training


@pytest.mark.parametrize("pooling", ["mean", "last"])
@pytest.mark.parametrize("build", [gpt2, llama, bert])
def test_padding_changes_no_vector(build, pooling):
    """Each text beside longer ones is what the model makes of it alone."""
    encoder = TextEncoder("name", pooling, loaded=loaded(build())).eval()
    together = encoder.encode_all(encoder.tokenize(TEXTS))
    for vector, text in zip(together, TEXTS, strict=True):
        ids = encoder.tokenize([text]).ids
        with torch.no_grad():
            hidden = encoder.model(input_ids=ids).last_hidden_state[0]
        alone = hidden.mean(0) if pooling == "mean" else hidden[-1]
        torch.testing.assert_close(vector, alone, atol=1e-5, rtol=1e-5)


def test_encoding_with_gradients_gives_the_gradients_of_the_texts_one_by_one():
    encoder = TextEncoder("name", loaded=loaded(bert())).eval()
    encoder.encode(encoder.tokenize(TEXTS), most_tokens=8).square().sum().backward()
    together = [None if weight.grad is None else weight.grad.clone() for weight in encoder.parameters()]
    encoder.zero_grad()
    for text in TEXTS:
        encoder(encoder.tokenize([text])).square().sum().backward()
    for gradient, weight in zip(together, encoder.parameters(), strict=True):
        assert (gradient is None) == (weight.grad is None)  # of BERT's pooler, which nobody asks
        if gradient is not None:
            torch.testing.assert_close(gradient, weight.grad, atol=1e-5, rtol=1e-4)


def test_a_model_without_hidden_states_is_refused_in_one_sentence():
    with pytest.raises(DataError, match="gpt2='name' cannot be loaded: Linear makes no hidden states of texts"):
        TextEncoder("name", loaded=loaded(torch.nn.Linear(2, 2)))


def test_tokens_may_be_padded_with_anything():
    encoder = TextEncoder("name", loaded=loaded(bert())).eval()
    tokens = encoder.tokenize(TEXTS)
    other = tokens.ids.clone()
    for row, length in zip(other, tokens.lengths, strict=True):
        row[length:] = 7
    torch.testing.assert_close(encoder(tokens), encoder(Tokens(other, tokens.lengths)), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize(
    "load", [lambda path: load_encoder("tiny"), lambda path: load_encoder("gpt2"), lambda path: from_parts(path, "x")]
)
def test_without_transformers_the_error_says_what_to_install(load, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ConfigError, match=r'transformers, which is not installed; pip install "brim\[hf\]", or'):
        load(tmp_path)
