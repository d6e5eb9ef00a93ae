import pytest
import torch

from brim.errors import ConfigError
from brim.workloads.recommender import EmbeddedDataset, GPT2RecommenderEnhanced, HistoryRecommender
from brim.workloads.recommender.history.item_encodings import encode_texts, item_encodings
from brim.workloads.recommender.text_encoder import TextEncoder

TEXTS = ["Movie: Heat.", "Ran", "Movie: Heat."]


@pytest.fixture
def encoded(monkeypatch):
    """How many texts each pass of an encoder read."""
    passes, really = [], TextEncoder.encode_all

    def encode_all(self, tokens, most_tokens=None):
        passes.append(len(tokens.lengths))
        return really(self, tokens, most_tokens)

    monkeypatch.setattr(TextEncoder, "encode_all", encode_all)
    return passes


def test_each_distinct_text_is_encoded_once_and_then_read_from_disk(encoded, tmp_path):
    first = encode_texts(TEXTS, "tiny", "auto", tmp_path)
    again = encode_texts(TEXTS, "tiny", "auto", tmp_path)
    assert encoded == [2]
    assert torch.equal(first, again)
    assert torch.equal(first[0], first[2])
    assert not torch.equal(first[0], first[1])


def test_other_texts_or_another_pooling_are_encoded_anew(encoded, tmp_path):
    for texts, pooling in ((TEXTS, "mean"), (TEXTS, "last"), ([*TEXTS[:2], "Toy Story"], "mean")):
        encode_texts(texts, "tiny", pooling, tmp_path)
    assert encoded == [2, 2, 3]


def test_without_a_folder_nothing_is_kept(encoded, tmp_path):
    for _ in range(2):
        encode_texts(TEXTS, "tiny", "auto", None)
    assert encoded == [2, 2]
    assert not list(tmp_path.iterdir())


def test_both_recommenders_that_read_share_what_is_kept(encoded, tmp_path):
    dataset = EmbeddedDataset(10, 30)
    other = GPT2RecommenderEnhanced(10, 30, 8, dataset, encodings_dir=tmp_path)
    other.build_cache()
    encoded.clear()
    HistoryRecommender.of(dataset.get_split_data("train"), dataset, embed_dim=8, encodings_dir=tmp_path)
    assert encoded == []


def test_random_vectors_are_as_wide_and_a_wrong_count_is_refused():
    given = torch.zeros(3, 5)
    drawn = item_encodings(3, None, "tiny", "random", given)
    assert drawn.shape == given.shape
    assert drawn.abs().sum() > 0
    with pytest.raises(ConfigError, match="texts of 3 items, and the training data is of 4"):
        item_encodings(4, None, "tiny", None, given)
    with pytest.raises(ConfigError, match="dataset= is needed"):
        item_encodings(3, None, "tiny")


def test_a_new_text_is_pooled_as_those_of_training(tmp_path):
    dataset = EmbeddedDataset(10, 30)
    model = HistoryRecommender.of(dataset.get_split_data("train"), dataset, embed_dim=8, pooling="last")
    with torch.no_grad():
        model.ids.weight.zero_()
        model.save_pretrained(tmp_path)
        again = HistoryRecommender.from_pretrained(tmp_path)
        known, new = model.item_vectors()[:3, :-1], again.new_item_vectors(dataset.item_texts()[:3])[:, :-1]
    torch.testing.assert_close(new, known, atol=1e-4, rtol=1e-4)
