import os
import shutil
from pathlib import Path

import pytest
import torch

from brim.errors import DataError, RunFolderError
from brim.workloads.recommender import BPR, EmbeddedDataset, GPT2RecommenderEnhanced


@pytest.fixture(scope="module")
def dataset():
    return EmbeddedDataset(12, 30)


def scores(model):
    with torch.no_grad():
        return model.user_vectors(torch.arange(12)) @ model.item_vectors().T


def test_ids_alone_come_back(tmp_path):
    model = BPR(12, 30, 4)
    model.save_pretrained(tmp_path / "saved")
    loaded = BPR.from_pretrained(tmp_path / "saved")
    assert torch.equal(scores(loaded), scores(model))
    assert not loaded.training


@pytest.mark.parametrize("lora", [None, 2])
def test_a_model_that_reads_comes_back_with_its_texts(tmp_path, dataset, lora):
    model = GPT2RecommenderEnhanced(12, 30, 8, dataset, use_cache=False, freeze_gpt2=False, hidden_dim=8, lora=lora)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.01 * torch.randn_like(parameter))
    model.save_pretrained(tmp_path)
    loaded = GPT2RecommenderEnhanced.from_pretrained(str(tmp_path))
    torch.testing.assert_close(scores(loaded), scores(model.eval()), atol=1e-5, rtol=1e-5)
    text = dataset.item_texts()[0]
    assert loaded.recommend_users(text, k=3) == model.recommend_users(text, k=3)


def test_the_folder_needs_nothing_of_where_the_encoder_came_from(tmp_path, dataset, monkeypatch):
    if "BRIM_TEST_DATA" not in os.environ:
        pytest.skip("needs GPT-2's vocabulary in the folder that BRIM_TEST_DATA names")
    from transformers import GPT2Config, GPT2Model

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    encoder = tmp_path / "encoder"
    GPT2Model(GPT2Config(n_positions=64, n_embd=16, n_layer=1, n_head=2)).save_pretrained(encoder)
    vocabulary = Path(os.environ["BRIM_TEST_DATA"]) / "gpt2-bpe"
    shutil.copy(vocabulary / "encoder.json", encoder / "vocab.json")
    shutil.copy(vocabulary / "vocab.bpe", encoder / "merges.txt")
    model = GPT2RecommenderEnhanced(12, 30, 8, dataset, gpt2=str(encoder), encodings_dir=tmp_path / "kept").eval()
    expected = scores(model)
    model.save_pretrained(tmp_path / "saved")
    shutil.rmtree(encoder)
    torch.testing.assert_close(scores(GPT2RecommenderEnhanced.from_pretrained(tmp_path / "saved")), expected)
    assert len(list((tmp_path / "kept").glob("*.brim"))) == 2  # of users and of items


def test_a_folder_of_another_model_is_refused(tmp_path):
    BPR(3, 4, 2).save_pretrained(tmp_path)
    with pytest.raises(DataError, match=r"holds a BPR, not a GPT2RecommenderEnhanced; use BPR\.from_pretrained"):
        GPT2RecommenderEnhanced.from_pretrained(tmp_path)


@pytest.mark.parametrize("content", [None, "", "[]", '{"model": "BPR"}'])
def test_a_folder_without_a_model_is_refused_in_one_sentence(tmp_path, content):
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(DataError, match="holds no model of brim's that can be read"):
        BPR.from_pretrained(tmp_path)


def test_weights_that_are_damaged_are_refused_in_one_sentence(tmp_path):
    BPR(3, 4, 2).save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"no weights")
    with pytest.raises(RunFolderError, match=r"cannot load weights from .*model\.safetensors"):
        BPR.from_pretrained(tmp_path)
