import inspect
from pathlib import Path

import pytest
from pydantic import ValidationError

from brim.engine import Trainer
from brim.errors import ConfigError
from brim.workloads.sections import (
    EvalSection,
    TrainerSection,
    TrainSection,
    check_trainer_section,
    trainer_arguments,
)

OBJECTS = {"model", "train_data", "eval_data", "test_data", "loss_fn", "callbacks"}  # cannot be written in a file
SIGNATURE = inspect.signature(Trainer).parameters


def test_the_trainer_section_has_the_trainers_keywords_that_fit_in_a_file():
    assert set(TrainerSection.model_fields) == set(SIGNATURE) - OBJECTS


def test_the_trainer_section_has_the_trainers_defaults():
    defaults = {name: parameter.default for name, parameter in SIGNATURE.items() if name not in OBJECTS}
    assert TrainerSection().model_dump() == defaults


def test_the_sections_defaults_pass_the_trainers_own_rules():
    check_trainer_section(TrainerSection())


def test_the_section_as_arguments_fits_the_trainers_signature():
    arguments = trainer_arguments(TrainerSection())
    bound = inspect.signature(Trainer).bind(None, None, **arguments)
    assert bound.arguments["lr"] == SIGNATURE["lr"].default


def test_a_run_dir_becomes_a_path_and_none_stays_none():
    assert trainer_arguments(TrainerSection(run_dir="a/b"))["run_dir"] == Path("a/b")
    assert trainer_arguments(TrainerSection())["run_dir"] is None


@pytest.mark.parametrize(("section", "key"), [(TrainSection, "batchsize"), (EvalSection, "K"), (TrainerSection, "LR")])
def test_a_section_refuses_keys_that_it_does_not_know(section, key):
    with pytest.raises(ValidationError, match=key):
        section(**{key: 1})


@pytest.mark.parametrize(
    ("section", "values"),
    [
        (TrainSection, {"batch_size": 0}),
        (TrainSection, {"batch_size": -1}),
        (TrainSection, {"batch_size": 1.5}),
        (TrainSection, {"num_workers": -1}),
        (TrainSection, {"prefetch_factor": 0}),
        (TrainSection, {"shuffle": "perhaps"}),
        (EvalSection, {"batch_size": 0}),
        (EvalSection, {"k": []}),
        (EvalSection, {"k": 10}),
        (EvalSection, {"k": ["ten"]}),
    ],
    ids=str,
)
def test_a_section_refuses_values_out_of_range(section, values):
    with pytest.raises(ValidationError, match=next(iter(values))):
        section(**values)


@pytest.mark.parametrize(("value", "text"), [(32, "32"), (16, "16"), ("bf16-mixed", "bf16-mixed")])
def test_a_precision_written_as_a_number_is_read_as_its_name(value, text):
    section = TrainerSection(precision=value)
    assert section.precision == text
    check_trainer_section(section)


@pytest.mark.parametrize(
    "values",
    [
        {"epochs": 0},
        {"max_steps": -1},
        {"patience": 0},
        {"keep": 0},
        {"log_every": 0},
        {"checkpoint_every": 0},
        {"gradient_accumulation_steps": 0},
        {"threads": 0},
        {"threads": "many"},
        {"micro_batch": 0},
        {"micro_batch": "half"},
        {"lr": 0},
        {"lr": -1.0},
        {"lr": float("nan")},
        {"lr": float("inf")},
        {"clip_norm": 0},
        {"eval_every": 0},
        {"eval_every": "often"},
        {"scheduler": "zigzag"},
        {"scheduler": {"pace": 3}},
        {"strategy": "tripple"},
        {"capture": "on"},
        {"precision": "64"},
    ],
    ids=str,
)
def test_the_trainers_rules_hold_for_the_section_and_name_the_setting(values):
    with pytest.raises(ConfigError, match=next(iter(values))):
        check_trainer_section(TrainerSection(**values))


def test_the_alias_accumulate_grad_batches_is_checked_like_the_setting_it_stands_for():
    with pytest.raises(ConfigError, match="must be a whole number of at least 1"):
        check_trainer_section(TrainerSection(accumulate_grad_batches=0))


def test_slicing_that_is_forbidden_and_asked_for_is_refused():
    with pytest.raises(ConfigError, match="micro_batch=8 asks for it"):
        check_trainer_section(TrainerSection(sliceable=False, micro_batch=8))
