"""A metric of the user's own: ``function(outputs, batch)``."""

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from brim.engine.components.loss import Loss
from brim.engine.evaluation.metrics.seen_batch import SeenBatch
from brim.engine.evaluation.metrics.summed_metric import SummedMetric, long_format, ratio, total_and_count
from brim.errors import ConfigError


def function_metric(name: str, function: Callable[[Any, Any], Any]) -> SummedMetric:
    """The mean of what a function gives for each sample; or ``brim.Loss(total, count)``, or the mean over a batch."""
    _check_arguments(name, function)
    return SummedMetric(name, lambda seen: _sums(name, function(seen.outputs, seen.batch), seen), ratio)


def _check_arguments(name: str, function: Callable[..., Any]) -> None:
    try:
        inspect.signature(function).bind(None, None)
    except TypeError as error:
        raise ConfigError(f"metrics={{{name!r}: ...}} must be a function of (outputs, batch): {error}") from error
    except ValueError:  # built-in functions have no signature
        return


def _sums(name: str, value: Any, seen: SeenBatch) -> Tensor:
    if isinstance(value, Loss):
        return total_and_count(value.total.detach(), _plain(value.count))
    if isinstance(value, Tensor) and value.dim():
        return total_and_count(value.detach().sum(dtype=long_format(value.device)), value.numel())
    try:
        mean = torch.as_tensor(value).detach()
    except (TypeError, ValueError, RuntimeError) as error:
        raise ConfigError(
            f"the metric {name!r} gave a {type(value).__name__}; let it return a number, a tensor with one for each "
            "sample, or brim.Loss(total, count)"
        ) from error
    if mean.dim():  # a numpy array, with a value for each sample
        return total_and_count(mean.double().sum(), mean.numel())
    return total_and_count(mean.to(long_format(mean.device)) * seen.samples, seen.samples)


def _plain(count: Tensor | float) -> Tensor | float:
    return count.detach() if isinstance(count, Tensor) else count
