import pytest
import torch
from torch import nn

import brim
from brim.engine.mistakes.named_batches import why_not
from brim.errors import ModelError

pytestmark = pytest.mark.usefixtures("own_folder")

datasets = pytest.importorskip("datasets")
transformers = pytest.importorskip("transformers")
IDS = [[1, 2, 3], [1, 2, 4], [3, 4, 5]]


def bert():
    small = {"vocab_size": 11, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    return transformers.BertForSequenceClassification(transformers.BertConfig(**small, intermediate_size=8))


def fit(columns, way=lambda data: data, **settings):
    data = datasets.Dataset.from_dict(columns)
    return brim.Trainer(bert(), way(data), device="cpu", threads=1, **settings).fit()


WAYS = {"bare": lambda data: data, "loader": lambda data: brim.Loader(data, batch_size=2),
        "torch's": lambda data: torch.utils.data.DataLoader(data, batch_size=2)}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_lists_instead_of_tensors_are_told_with_the_format_to_ask_for(way):
    with pytest.raises(ModelError, match=r"'input_ids' is a list of .* ds.with_format\('torch'\)") as told:
        fit({"input_ids": IDS, "labels": [0, 1, 0]}, WAYS[way])
    assert told.value.__cause__ is not None and "\n" not in str(told.value)


def test_text_is_told_to_be_tokenized():
    with pytest.raises(ModelError, match="'text' is text: tokenize it"):
        fit({"text": ["a", "b", "c"], "labels": [0, 1, 0]})


def test_classes_by_name_are_told_to_be_numbers():
    with pytest.raises(ModelError, match=r"'labels' is text: give each class a number"):
        fit({"input_ids": IDS, "labels": ["a", "b", "a"]}, lambda data: data.with_format("torch"))


def test_with_the_format_it_trains():
    assert fit({"input_ids": IDS, "labels": [0, 1, 0]}, lambda data: data.with_format("torch")).steps == 1


def test_an_error_of_a_model_that_got_tensors_is_its_own():
    class Fails(nn.Linear):
        def forward(self, x, labels=None):
            raise ValueError("mine")

    assert why_not({"x": torch.ones(2)}) is None
    with pytest.raises(ValueError, match="mine"):
        brim.Trainer(
            Fails(1, 1), [{"x": torch.ones(2, 1), "labels": torch.ones(2)}], device="cpu", optimizer="SGD"
        ).fit()
