from types import SimpleNamespace

import numpy as np
import pytest
import torch

from brim.engine.mistakes.evaluators import as_numbers, check_evaluator
from brim.errors import ConfigError


class Accuracy:
    monitor, higher_is_better = "accuracy", True

    def evaluate(self, model):
        return {"accuracy": 1.0}


@pytest.mark.parametrize("data", [Accuracy(), [1], None, SimpleNamespace(evaluate=3)])
def test_evaluators_and_plain_data_pass(data):
    check_evaluator(data)


def test_a_class_and_missing_fields_are_named():
    with pytest.raises(ConfigError, match=r"hand over an object: Accuracy\(\)"):
        check_evaluator(Accuracy)
    with pytest.raises(ConfigError, match="give it monitor = 'accuracy' and higher_is_better = True"):
        check_evaluator(SimpleNamespace(evaluate=print))
    with pytest.raises(ConfigError, match="give it higher_is_better = True"):
        check_evaluator(SimpleNamespace(evaluate=print, monitor="x"))


def test_numbers_of_any_library_are_numbers():
    assert as_numbers({"a": torch.tensor([2.0]), "b": np.float32(0.5), 3: True}, "Accuracy.evaluate") == {
        "a": 2,
        "b": 0.5,
        "3": 1,
    }


@pytest.mark.parametrize(
    ("metrics", "told"),
    [
        ({"f1": torch.ones(3)}, r"a tensor of shape \(3,\) as 'f1'; a metric is one number"),
        ({"f1": "good"}, "a str as 'f1'"), ({"f1": None}, "a NoneType as 'f1'"), (0.5, "returned a float; it must"),
        (None, "returned a NoneType"), (torch.ones(2), r"a tensor of shape \(2,\)"),
    ],
)  # fmt: skip
def test_what_is_no_number_is_told_with_its_name(metrics, told):
    with pytest.raises(ConfigError, match=f"Accuracy.evaluate returned {told}" if "returned" not in told else told):
        as_numbers(metrics, "Accuracy.evaluate")
