import pytest

from brim.errors import ConfigError
from brim.integrations.lightning.modules.settings import brim_settings


def test_lightnings_names_become_brims():
    given = {
        "max_epochs": 2, "gradient_clip_val": 0.5, "limit_val_batches": 3, "check_val_every_n_epoch": 2,
        "log_every_n_steps": 5, "accelerator": "gpu", "devices": 1, "precision": "bf16-mixed",
    }  # fmt: skip
    assert brim_settings(given) == {
        "epochs": 2, "clip_norm": 0.5, "limit_eval_batches": 3, "eval_every": 2, "log_every": 5, "device": "cuda",
        "precision": "bf16-mixed",
    }  # fmt: skip


def test_lightnings_defaults_are_no_settings():
    given = {"max_epochs": 1, "gradient_clip_val": None, "max_steps": -1, "limit_train_batches": 1.0, "devices": "auto"}
    assert brim_settings(given) == {"epochs": 1}
    given = {"max_epochs": None, "max_steps": 5, "num_sanity_val_steps": 2}
    assert brim_settings(given) == brim_settings({**given, "max_epochs": -1}) == {"max_steps": 5}
    given = {"max_epochs": 1, "logger": False, "precision": "32-true"}
    assert brim_settings(given) == {"epochs": 1, "loggers": False, "precision": "32"}


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({}, "say how long to train"),
        ({"max_epoch": 3}, "did you mean max_epochs=?"),
        ({"max_epochs": 1, "epochs": 1}, "max_epochs and epochs are the same setting"),
        ({"device": "cuda:1", "accelerator": "cpu", "epochs": 1}, "device and accelerator are the same setting"),
        ({"loggers": "csv", "logger": False, "epochs": 1}, "loggers and logger are the same setting"),
        ({"max_epochs": 1, "devices": 4}, "devices=4"),
        ({"max_epochs": 1, "accelerator": "tpu"}, "accelerator='tpu'"),
        ({"max_epochs": 1, "limit_val_batches": 0.5}, "a share of the batches"),
        ({"max_epochs": 1, "val_check_interval": 0.25}, "eval_every='500 steps'"),
        ({"max_epochs": 1, "gradient_clip_algorithm": "value"}, "clips by norm"),
        ({"max_epochs": -1}, "say how long to train"),
        ({"max_epochs": 1, "num_sanity_val_steps": 0}, "train tries two batches of the validation data"),
        ({"max_epochs": 1, "overfit_batches": 2}, "pass limit_train_batches="),
        ({"max_epochs": 1, "strategy": "ddp"}, "on one device"),
        ({"max_epochs": 1, "use_multi_gpu": True}, "on one device"),
        ({"max_epochs": 1, "logger": object()}, "pass loggers="),
        ({"max_epochs": 1, "ckpt_path": "a.ckpt"}, "resume='runs/NAME'"),
        ({"max_epochs": 1, "optimizer": "adam"}, "the module says it itself, in configure_optimizers"),
        ({"max_epochs": 1, "metrics": "accuracy"}, r"with self\.log in validation_step"),
        ({"max_epochs": 1, "test_data": []}, r"lightning\.Trainer\(\)\.test\(module, loader\)"),
    ],
)
def test_what_means_something_else_is_refused(given, sentence):
    with pytest.raises(ConfigError, match=sentence):
        brim_settings(given)
