import os
import shutil
import warnings
from pathlib import Path

import pytest
import torch

from brim.errors import DataError
from brim.workloads.recommender.text_encoder import TextEncoder, Tokens

TEXTS = ["Movie: Heat (1995). Genres: Action, Crime.", "Ran", "", "Léon", "User: woman, age 25-34.", "x" * 90]


@pytest.fixture(scope="module")
def encoder():
    return TextEncoder("tiny")


@pytest.fixture
def gpt2_folder(tmp_path, monkeypatch):
    """A small GPT-2 with GPT-2's own tokenizer, as transformers saves one."""
    if "BRIM_TEST_DATA" not in os.environ:
        pytest.skip("needs GPT-2's vocabulary in the folder that BRIM_TEST_DATA names")
    from transformers import GPT2Config, GPT2Model

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    GPT2Model(GPT2Config(n_positions=32, n_embd=16, n_layer=1, n_head=2)).save_pretrained(tmp_path)
    vocabulary = Path(os.environ["BRIM_TEST_DATA"]) / "gpt2-bpe"
    shutil.copy(vocabulary / "encoder.json", tmp_path / "vocab.json")
    shutil.copy(vocabulary / "vocab.bpe", tmp_path / "merges.txt")
    return tmp_path


def one_by_one(encoder, texts):
    """Each text's vector by itself: the mean over its last hidden states, without any padding."""
    encoder.eval()
    vectors = []
    for text in texts:
        tokens = encoder.tokenize([text])
        with torch.no_grad():
            vectors.append(encoder.model(input_ids=tokens.ids).last_hidden_state[0].mean(0))
    return torch.stack(vectors)


def test_a_texts_tokens_are_padded_at_the_end(encoder):
    tokens = encoder.tokenize(["ab", "é", "abcd"])
    assert tokens.lengths.tolist() == [2, 2, 4]
    assert tokens.ids.tolist() == [[98, 99, 0, 0], [0xC3 + 1, 0xA9 + 1, 0, 0], [98, 99, 100, 101]]


def test_some_of_the_texts_are_no_wider_than_the_longest_of_them(encoder):
    tokens = encoder.tokenize(["ab", "c", "abcd"])[torch.tensor([1, 0])]
    assert tokens.ids.tolist() == [[100, 0], [98, 99]]
    assert tokens.lengths.tolist() == [1, 2]


@pytest.mark.parametrize("padding", [1, 7, 100])
def test_padding_of_any_length_and_content_changes_no_vector(encoder, padding):
    tokens = encoder.tokenize(TEXTS)
    for pad in (0, 200):
        ids = torch.cat([tokens.ids, torch.full((len(TEXTS), padding), pad)], 1)
        with torch.no_grad():
            vectors = encoder.eval()(Tokens(ids, tokens.lengths))
        torch.testing.assert_close(vectors, one_by_one(encoder, TEXTS), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("most_tokens", [1, 60, 10_000])
def test_encoding_all_is_encoding_one_by_one(encoder, most_tokens):
    vectors = encoder.encode_all(encoder.tokenize(TEXTS), most_tokens)
    torch.testing.assert_close(vectors, one_by_one(encoder, TEXTS), atol=1e-5, rtol=1e-5)
    assert not vectors.requires_grad


@pytest.mark.parametrize("training", [True, False])
def test_encoding_all_has_no_dropout_and_leaves_the_mode_as_it_was(encoder, training):
    encoder.train(training)
    tokens = encoder.tokenize(TEXTS)
    assert torch.equal(encoder.encode_all(tokens), encoder.encode_all(tokens))
    assert encoder.training == encoder.model.training == training


def test_encoding_all_is_in_full_precision_even_under_autocast(encoder):
    tokens = encoder.tokenize(TEXTS)
    expected = encoder.encode_all(tokens)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(encoder.encode_all(tokens), expected)


def test_the_tiny_encoder_is_the_same_every_time_and_nobody_elses_draws_are_moved():
    before = torch.get_rng_state()
    first = TextEncoder("tiny")
    torch.rand(3)
    second = TextEncoder()
    torch.set_rng_state(before)
    TextEncoder("tiny")
    assert torch.equal(torch.get_rng_state(), before)
    tokens = first.tokenize(TEXTS)
    assert torch.equal(first.encode_all(tokens), second.encode_all(tokens))


def test_different_texts_have_different_vectors(encoder):
    vectors = encoder.encode_all(encoder.tokenize(TEXTS))
    assert torch.cdist(vectors, vectors).fill_diagonal_(1).min() > 1e-2


def test_an_empty_text_has_a_vector(encoder):
    vectors = encoder.encode_all(encoder.tokenize([""]))
    assert vectors.shape == (1, 128)
    assert vectors.isfinite().all()


@pytest.mark.parametrize(("texts", "said"), [(["Ran", None], "text 1 is None"), ([], "there are no texts to encode")])
def test_what_is_no_text_is_refused_by_its_place(encoder, texts, said):
    with pytest.raises(DataError, match=said):
        encoder.tokenize(texts)


def test_a_text_longer_than_the_window_is_cut_there_with_a_warning(encoder):
    with pytest.warns(UserWarning, match=r"1 of 2 texts are longer than tiny's window of 256 tokens and are cut"):
        tokens = encoder.tokenize(["x" * 256 + "y" * 50, "ab"])
    assert tokens.lengths.tolist() == [256, 2]
    cut = encoder.tokenize(["x" * 256, "ab"])
    torch.testing.assert_close(encoder.encode_all(tokens), encoder.encode_all(cut))


def test_a_text_as_long_as_the_window_is_not_warned_about(encoder):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert encoder.tokenize(["x" * 256]).lengths.tolist() == [256]


def test_gradients_reach_the_model(encoder):
    encoder(encoder.tokenize(TEXTS)).sum().backward()
    assert encoder.model.wte.weight.grad[ord("R") + 1].abs().sum() > 0
    encoder.zero_grad()


def test_a_folder_that_transformers_saved_is_loaded(gpt2_folder):
    from transformers import AutoModel

    encoder = TextEncoder(str(gpt2_folder))
    assert (encoder.width, encoder.window) == (16, 32)
    tokens = encoder.tokenize(["hello world", "x", ""])
    assert tokens.ids[0].tolist() == [31373, 995]  # GPT-2's own
    assert tokens.lengths.tolist() == [2, 1, 1]
    with torch.no_grad():
        plain = AutoModel.from_pretrained(gpt2_folder)(torch.tensor([[31373, 995]])).last_hidden_state.mean(1)
    torch.testing.assert_close(encoder.encode_all(tokens)[:1], plain, atol=1e-5, rtol=1e-5)


def test_a_loaded_models_window_cuts_too(gpt2_folder):
    encoder = TextEncoder(str(gpt2_folder))
    with pytest.warns(UserWarning, match="window of 32 tokens"):
        assert encoder.tokenize(["hello world " * 40]).lengths.tolist() == [32]


@pytest.mark.parametrize("name", ["no-such-model-of-anybody", "nobody/no-such-model", "/no/such/folder"])
def test_a_name_that_cannot_be_loaded_is_refused_in_one_sentence_without_the_network(monkeypatch, name):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(DataError, match=rf"gpt2='{name}' cannot be loaded: no such folder.*gpt2='tiny'") as error:
        TextEncoder(name)
    assert "\n" not in str(error.value)


def test_an_empty_folder_is_refused_by_its_name(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(DataError, match=rf"gpt2='{tmp_path}' cannot be loaded"):
        TextEncoder(str(tmp_path))
