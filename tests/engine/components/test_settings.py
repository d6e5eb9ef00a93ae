import inspect
from dataclasses import asdict, replace

import pytest
import torch

from brim.engine import Trainer
from brim.engine.components.settings import TrainerSettings, check_choice
from brim.errors import ConfigError

SIGNATURE = inspect.signature(Trainer.__init__).parameters


def test_the_trainers_defaults_are_those_of_its_settings_and_are_allowed():
    settings = TrainerSettings()
    assert asdict(settings) == {name: SIGNATURE[name].default for name in asdict(settings)}
    settings.check()


def test_every_setting_that_a_trainer_is_given_is_in_its_settings(tmp_path):
    others = {"model", "train_data", "eval_data", "test_data", "loss_fn", "callbacks", "self"}
    assert set(asdict(TrainerSettings())) == set(SIGNATURE) - others
    given = {"lr": 0.5, "epochs": 2, "max_steps": 3, "clip_norm": 1.5, "seed": 7, "deterministic": True, "keep": 2}
    given |= {"use_multi_gpu": False, "strategy": "single", "micro_batch": 2, "threads": 1, "sliceable": True}
    given |= {"gradient_accumulation_steps": 2, "precision": "bf16-mixed", "capture": "off", "compile": "eager"}
    given |= {"checkpointing": True, "on_nan": "skip", "scale_lr": "sqrt", "eval_every": 3, "log_every": 4}
    given |= {"checkpoint_every": 5, "run_dir": tmp_path, "optimizer": "SGD", "scheduler": "cosine", "device": "cpu"}
    given |= {"accumulate_grad_batches": 2, "patience": 9, "scheduler_every": "step", "keep_best": 2, "tier": "small"}
    given |= {"restore_best": False, "limit_train_batches": 8, "limit_eval_batches": 9, "overfit_batches": None}
    given |= {"fast_dev_run": False, "ema": 0.9, "metrics": ["accuracy"], "monitor": "accuracy", "mode": "max"}
    given |= {"loggers": ["csv"], "forecast": "auto", "logits": "auto", "fit": "auto", "memory_format": "channels_last"}
    data = (torch.ones(3, 1), torch.ones(3, 1))
    assert asdict(Trainer(torch.nn.Linear(1, 1), data, loss_fn=torch.nn.MSELoss(), **given).settings) == given


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epochs", 0), ("epochs", 2.0), ("epochs", True), ("max_steps", 0), ("lr", 0.0), ("lr", float("nan")),
        ("lr", "fast"), ("clip_norm", -1.0), ("gradient_accumulation_steps", 0), ("micro_batch", 0),
        ("micro_batch", "tiny"), ("threads", -2), ("log_every", 0), ("checkpoint_every", 0), ("keep", 0),
        ("patience", 0), ("precision", "64"), ("strategy", "dpp"), ("capture", "on"), ("on_nan", "ignore"),
        ("eval_every", "never"), ("run_dir", ""), ("precision", 64), ("precision", True), ("mode", "highest"),
        ("loggers", "wandbe"), ("scheduler", "cosinus"), ("epochs", None),
    ],
)  # fmt: skip
def test_a_value_that_cannot_be_used_is_refused_by_its_name(name, value):
    with pytest.raises(ConfigError, match=f"{name}="):
        replace(TrainerSettings(), **{name: value}).check()


@pytest.mark.parametrize("precision", [16, 32, "bf16", "fp16"])
def test_a_precision_may_be_a_number(precision):
    TrainerSettings(precision=precision).check()


def test_slicing_what_must_not_be_sliced_is_refused():
    with pytest.raises(ConfigError, match="sliceable=False"):
        TrainerSettings(sliceable=False, micro_batch=4).check()


def test_the_nearest_name_is_offered():
    with pytest.raises(ConfigError, match="did you mean 'auto'"):
        check_choice("strategy", "atuo", ("auto", "single"))
