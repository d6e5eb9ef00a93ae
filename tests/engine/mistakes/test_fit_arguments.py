from pathlib import Path

import pytest
from torch import nn

from brim.engine.mistakes.fit_arguments import check_fit_arguments
from brim.errors import ConfigError


@pytest.mark.parametrize("given", [(False, None, None), (True, "a.pt", "auto"), (True, Path("a.pt"), Path("runs"))])
def test_what_fit_takes_passes(given):
    check_fit_arguments(*given)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (([(1, 2)], None, None), r"got a list: they are Trainer\(model, train_data"),
        ((nn.Linear(1, 1), None, None), "got a model"),
        ((False, 3, None), "model_path="),
        ((False, None, True), "resume=True does not say which run"),
        ((False, None, ""), "resume='' names no run folder"),
    ],
)
def test_what_other_trainers_take_is_refused(given, told):
    with pytest.raises(ConfigError, match=told):
        check_fit_arguments(*given)
