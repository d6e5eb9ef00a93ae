import inspect

import pytest

from brim.engine import Trainer
from brim.engine.settings import CHOICES, check_choice, check_settings
from brim.errors import ConfigError, NotThereYet

DEFAULTS = {
    name: parameter.default
    for name, parameter in inspect.signature(Trainer.__init__).parameters.items()
    if parameter.default is not inspect.Parameter.empty
}


def test_the_trainers_defaults_are_allowed():
    check_settings(DEFAULTS)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epochs", 0), ("epochs", 2.0), ("epochs", True), ("max_steps", 0), ("lr", 0.0), ("lr", float("nan")),
        ("lr", "fast"), ("clip_norm", -1.0), ("gradient_accumulation_steps", 0), ("micro_batch", 0),
        ("micro_batch", "tiny"), ("threads", -2), ("log_every", 0), ("checkpoint_every", 0), ("keep", 0),
        ("patience", 0), ("precision", "64"), ("strategy", "dpp"), ("capture", "on"), ("on_nan", "ignore"),
        ("eval_every", "never"), ("scheduler", "cosinus"), ("epochs", None),
    ],
)  # fmt: skip
def test_a_value_that_cannot_be_used_is_refused_by_its_name(name, value):
    with pytest.raises(ConfigError, match=f"{name}="):
        check_settings({**DEFAULTS, name: value})


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, (_, later) in CHOICES.items() for value in later])
def test_what_is_not_there_yet_is_refused_by_name_not_ignored(name, value):
    with pytest.raises(NotThereYet, match=f"{name}={value!r} is not in this version"):
        check_settings({**DEFAULTS, name: value})


def test_slicing_what_must_not_be_sliced_is_refused():
    with pytest.raises(ConfigError, match="sliceable=False"):
        check_settings({**DEFAULTS, "sliceable": False, "micro_batch": 4})


def test_the_nearest_name_is_offered():
    with pytest.raises(ConfigError, match="did you mean 'auto'"):
        check_choice("strategy", "atuo", ("auto", "single"))
