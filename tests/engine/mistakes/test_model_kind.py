from pathlib import Path

import pytest
import torch
from torch import nn

from brim.engine.mistakes.model_kind import check_model, check_weights
from brim.errors import ConfigError


@pytest.mark.parametrize("model", [nn.Linear(1, 1), nn.ModuleList(), torch.compile(nn.Linear(1, 1), backend="eager")])
def test_modules_pass(model):
    check_model(model)


@pytest.mark.parametrize(
    ("model", "told"),
    [
        (nn.Linear, r"the class Linear; hand over an object of it: Linear\("),
        (lambda x: x, "has no parameters to train"),
        (torch.relu, "the function relu"),
        ("bert-base", "a name, not a model"),
        (Path("model.pt"), "a name, not a model"),
        (nn.Linear(1, 1).state_dict(), "load_state_dict"),
        (None, "a NoneType"),
    ],
)
def test_what_is_no_module_is_refused_with_what_to_hand_over(model, told):
    with pytest.raises(ConfigError, match=told):
        check_model(model)


def test_weights_that_autograd_cannot_train_are_refused():
    with torch.inference_mode():
        model = nn.Linear(1, 1)
    with pytest.raises(ConfigError, match=r"Linear was made under torch\.inference_mode"):
        check_weights(model)
