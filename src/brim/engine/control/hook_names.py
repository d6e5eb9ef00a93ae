"""Callbacks that would never be called: no object, no Callback, a hook under another trainer's name."""

import inspect
from typing import Any

from brim.arguments.nearest import nearest
from brim.engine.components.settings import shorten
from brim.engine.control.callbacks import Callback
from brim.errors import ConfigError

# What Lightning, transformers, Composer, Keras and fastai call the moments of a run, by the nearest hook here.
ELSEWHERE: dict[str, str] = {
    "on_train_start": "on_fit_start", "on_train_begin": "on_fit_start", "fit_start": "on_fit_start",
    "on_init_end": "on_fit_start", "on_sanity_check_start": "on_fit_start", "before_train": "on_fit_start",
    "on_train_end": "on_fit_end", "on_train_finish": "on_fit_end", "fit_end": "on_fit_end", "after_train": "on_fit_end",
    "on_train_batch_end": "on_step_end", "on_batch_end": "on_step_end", "batch_end": "on_step_end",
    "on_optimizer_step": "on_step_end", "on_before_zero_grad": "on_step_end", "on_iteration_end": "on_step_end",
    "on_after_backward": "on_step_end", "on_substep_end": "on_step_end", "on_log": "on_step_end",
    "after_train_batch": "on_step_end", "after_iter": "on_step_end",
    "before_fit": "on_fit_start", "after_fit": "on_fit_end", "before_epoch": "on_epoch_start",
    "after_epoch": "on_epoch_end", "before_batch": "on_step_start", "after_batch": "on_step_end",
    "before_validate": "on_evaluate_start", "after_validate": "on_evaluate",
    "on_train_batch_start": "on_step_start", "on_batch_start": "on_step_start", "on_step_begin": "on_step_start",
    "on_batch_begin": "on_step_start", "on_train_batch_begin": "on_step_start", "batch_start": "on_step_start",
    "on_before_optimizer_step": "on_step_start", "on_pre_optimizer_step": "on_step_start",
    "on_train_epoch_end": "on_epoch_end", "epoch_end": "on_epoch_end",
    "on_train_epoch_start": "on_epoch_start", "on_epoch_begin": "on_epoch_start", "epoch_start": "on_epoch_start",
    "on_validation_end": "on_evaluate", "on_validation_epoch_end": "on_evaluate", "on_evaluate_end": "on_evaluate",
    "on_eval_end": "on_evaluate", "on_test_end": "on_evaluate", "on_test_epoch_end": "on_evaluate",
    "on_validation_batch_end": "on_evaluate", "on_val_end": "on_evaluate", "eval_end": "on_evaluate",
    "on_validation_start": "on_evaluate_start", "on_validation_epoch_start": "on_evaluate_start",
    "on_test_start": "on_evaluate_start",
    "on_prediction_step": "on_evaluate", "on_predict_end": "on_evaluate",
    "on_save_checkpoint": "on_save", "on_checkpoint": "on_save", "on_load_checkpoint": "on_load",
    "on_keyboard_interrupt": "on_exception", "on_error": "on_exception",
}  # fmt: skip

# Callbacks of theirs that are settings here, by the names of their classes.
INSTEAD: dict[str, str] = {
    "EarlyStopping": "patience=3, with monitor= and mode=",
    "EarlyStoppingCallback": "patience=3, with monitor= and mode=",
    "EarlyStopper": "patience=3, with monitor= and mode=",
    "ModelCheckpoint": "keep_best=, keep= and checkpoint_every=, with monitor= and mode=",
    "CheckpointSaver": "keep_best=, keep= and checkpoint_every=, with monitor= and mode=",
    "LearningRateMonitor": "not needed: lr is in every line of metrics.jsonl",
    "LRMonitor": "not needed: lr is in every line of metrics.jsonl",
    "DeviceStatsMonitor": "not needed: memory and shares of time are in metrics.jsonl",
    "SpeedMonitor": "not needed: samples_per_second is in metrics.jsonl",
    "TQDMProgressBar": "not needed: a bar is shown in a terminal",
    "RichProgressBar": "not needed: a bar is shown in a terminal",
    "ProgressCallback": "not needed: a bar is shown in a terminal",
    "ModelSummary": "not needed: about.json of the run folder says what was trained",
    "StochasticWeightAveraging": "ema=0.999, a moving average of the weights, or a brim.Callback of your own",
    "WeightAveraging": "ema=0.999, a moving average of the weights",
    "EMA": "ema=0.999, a moving average of the weights",
    "EMAWeightAveraging": "ema=0.999, a moving average of the weights",
    "GradientAccumulationScheduler": "gradient_accumulation_steps=, the same in all epochs",
    "BatchSizeFinder": "not needed: micro_batch='auto' finds what fits; brim.largest_batch finds a batch",
    "TensorBoardCallback": "loggers='tensorboard'",
    "WandbCallback": "loggers='wandb'",
    "MLflowCallback": "loggers='mlflow'",
    "CSVLogger": "loggers='csv'",
}


def hook_names() -> list[str]:
    """The moments at which a callback is called.

    >>> "on_epoch_end" in hook_names()
    True
    """
    return [name for name in vars(Callback) if name.startswith("on_")]


def check_callbacks(callbacks: Any) -> tuple[Callback, ...]:
    """The callbacks of a run as a tuple, each of them seen to be one that can be called; one alone will do."""
    if callbacks is None:
        return ()
    if isinstance(callbacks, Callback) or not isinstance(callbacks, list | tuple):
        callbacks = [callbacks]
    for callback in callbacks:
        _check_kind(callback)
        _check_names(callback)
        for name in hook_names():
            _check_arguments(callback, name)
    return tuple(callbacks)


def _check_kind(callback: Any) -> None:
    if isinstance(callback, type):
        raise ConfigError(
            f"callbacks= holds the class {callback.__name__}, and nothing of it would be called; "
            f"hand over an object: {callback.__name__}()"
        )
    if not isinstance(callback, Callback):
        if (instead := INSTEAD.get(type(callback).__name__)) is not None:
            raise ConfigError(f"{type(callback).__name__} is a callback of another trainer's; here it is {instead}")
        raise ConfigError(
            f"callbacks= holds {shorten(callback)}, which is no brim.Callback; derive its class from "
            f"brim.Callback, whose hooks are {', '.join(hook_names())}"
        )


def _check_names(callback: Callback) -> None:
    """Refuse a method that looks like a hook and is none: it would never be called."""
    hooks, kind = hook_names(), type(callback).__name__
    own = [name for base in type(callback).__mro__ if base not in Callback.__mro__ for name in vars(base)]
    own += [name for name, value in vars(callback).items() if callable(value)]
    handles = any(name in hooks for name in own)
    for name in own:
        is_hook = name.startswith("on_") or (name in ELSEWHERE and not handles)
        if is_hook and name not in hooks and callable(getattr(callback, name, None)):
            raise ConfigError(f"{kind}.{name} would never be called: {_nearest(name, hooks)}")


def _nearest(name: str, hooks: list[str]) -> str:
    here = ELSEWHERE.get(name, name)
    if here in hooks:
        wanted = ", ".join(list(inspect.signature(getattr(Callback, here)).parameters)[1:])
        return f"the hook here is {here}(self, {wanted})"
    if (near := nearest(name, hooks, 0.75)) is not None:
        return f"did you mean {near}?"
    return f"the hooks are {', '.join(hooks)}; call it otherwise if it is none"


def _check_arguments(callback: Callback, name: str) -> None:
    """A hook that cannot take what it is called with would end the run in its middle."""
    method = getattr(callback, name)
    if getattr(method, "__func__", None) is getattr(Callback, name):
        return
    wanted = list(inspect.signature(getattr(Callback, name)).parameters)[1:]
    try:
        taken = inspect.signature(method)
    except (TypeError, ValueError):  # native code has none
        return
    try:
        taken.bind(*wanted)
    except TypeError:
        raise ConfigError(
            f"{type(callback).__name__}.{name} takes {taken}, and is called with ({', '.join(wanted)}); write "
            f"def {name}(self, {', '.join(wanted)})"
        ) from None
