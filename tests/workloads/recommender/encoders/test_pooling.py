import json

import pytest
import torch

from brim.errors import ConfigError
from brim.workloads.recommender.encoders.pooling import POOLINGS, choose_pooling, declared_pooling

HIDDEN = torch.tensor([[[1.0], [3.0], [torch.nan]], [[2.0], [4.0], [9.0]]])
LENGTHS = torch.tensor([2, 3])


@pytest.mark.parametrize(("pooling", "expected"), [("mean", [2.0, 5.0]), ("last", [3.0, 9.0]), ("cls", [1.0, 2.0])])
def test_only_a_texts_own_tokens_are_pooled(pooling, expected):
    assert POOLINGS[pooling](HIDDEN, LENGTHS).flatten().tolist() == expected


def test_what_is_asked_for_goes_before_what_the_files_say_and_that_before_the_mean():
    assert choose_pooling("last", "cls", False) == "last"
    assert choose_pooling("auto", "cls", False) == "cls"
    assert choose_pooling("auto", None, False) == "mean"


def test_the_first_token_of_a_decoder_is_refused():
    with pytest.raises(ConfigError, match=r"first token, which in a decoder has seen no other; use 'last' or 'mean'"):
        choose_pooling("cls", None, True)


def test_an_unknown_pooling_is_refused():
    with pytest.raises(ConfigError, match=r"pooling='max' is not known; use one of auto, mean, last, cls"):
        choose_pooling("max", None, False)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "cls"),
        ({"pooling_mode_mean_tokens": True}, "mean"),
        ({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True}, None),
        ([], None),
    ],
)
def test_sentence_transformers_files_say_how_to_pool(tmp_path, said, expected):
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps(said))
    assert declared_pooling(tmp_path) == expected
