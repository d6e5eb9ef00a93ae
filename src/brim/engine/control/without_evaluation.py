"""Settings of evaluations, in a run that has nothing to evaluate on: they would do nothing, and nobody would say so."""

from collections.abc import Callable
from typing import Any

from torch.optim.lr_scheduler import ReduceLROnPlateau

from brim.engine.components.settings import TrainerSettings
from brim.errors import ConfigError


def check_without_evaluation(
    settings: TrainerSettings, scheduler: Any, has_test_data: bool, warn: Callable[[str], Any]
) -> None:
    """Refuse, in a run without ``eval_data``, what waits for its evaluations; warn of what has no effect in ``fit``.

    >>> check_without_evaluation(TrainerSettings(eval_every=5), None, has_test_data=False, warn=print)
    eval_every=5 has no effect: there is no eval_data
    """
    if settings.patience is not None or isinstance(scheduler, ReduceLROnPlateau):
        raise ConfigError("patience= and ReduceLROnPlateau wait for evaluations, and there is no eval_data; pass it")
    if settings.monitor is not None:
        raise ConfigError(f"monitor={settings.monitor!r} waits for evaluations, and there is no eval_data; pass it")
    if settings.keep_best > 1:
        raise ConfigError(
            f"keep_best={settings.keep_best} keeps the weights of the best evaluations, and there is no eval_data; "
            "pass it, or keep checkpoints with keep="
        )
    if settings.eval_every != 1:
        warn(f"eval_every={settings.eval_every} has no effect: there is no eval_data")
    if has_test_data:
        return
    if settings.metrics is not None:
        warn(
            "metrics= are computed by evaluations, and there is no eval_data and no test_data: fit computes none of "
            "them, trainer.evaluate(data) does"
        )
    if settings.limit_eval_batches is not None and not settings.fast_dev_run:
        warn(
            f"limit_eval_batches={settings.limit_eval_batches} has no effect in fit: there is no eval_data and no "
            "test_data"
        )
