from pathlib import Path

import pytest
import torch
from torch import nn

from brim.engine.mistakes.model_kind import check_model
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
