import functools

import pytest
import torch

from brim.engine.mistakes.one_argument import check_takes_one
from brim.errors import ConfigError

STEP = torch.optim.lr_scheduler.StepLR


@pytest.mark.parametrize(
    "function",
    [torch.optim.SGD, lambda p: p, lambda p, lr=1: p, lambda *p: p, functools.partial(STEP, step_size=3), len],
)
def test_what_takes_one_passes(function):
    check_takes_one(function, "optimizer", "...")


@pytest.mark.parametrize("function", [STEP, lambda: 1, lambda a, b: 1])
def test_what_takes_more_or_less_is_met_with_an_example(function):
    with pytest.raises(ConfigError, match=r"scheduler=.* is called with one argument .*; write scheduler=EXAMPLE"):
        check_takes_one(function, "scheduler", "EXAMPLE")


@pytest.mark.parametrize("value", [[1], 3, True])
def test_what_cannot_be_called_is_named(value):
    with pytest.raises(ConfigError, match=f"scheduler= is an? {type(value).__name__}"):
        check_takes_one(value, "scheduler", "EXAMPLE")
