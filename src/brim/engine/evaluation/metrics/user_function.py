"""A metric of the user's own: ``function(outputs, batch)``."""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from brim.engine.calling.loss_form import BATCHES, TARGETS
from brim.engine.components.loss import Loss
from brim.engine.evaluation.metrics.seen_batch import SeenBatch
from brim.engine.evaluation.metrics.summed_metric import SummedMetric, accumulation_dtype, ratio, total_and_count
from brim.errors import ConfigError, a_type


def function_metric(name: str, function: Callable[[Any, Any], Any]) -> SummedMetric:
    """The mean of what a function gives for each sample; or ``brim.Loss(total, count)``, or the mean over a batch."""
    _check_arguments(name, function)
    return SummedMetric(name, lambda seen: _sums(name, function(seen.outputs, seen.batch), seen), ratio)


def _check_arguments(name: str, function: Callable[..., Any]) -> None:
    try:
        signature = inspect.signature(function.forward if isinstance(function, nn.Module) else function)
        signature.bind(None, None)
    except TypeError as error:
        if _takes_one(signature):
            raise ConfigError(
                f"metrics={{{name!r}: ...}} takes one argument, and a metric is a function of (outputs, batch), called "
                "for each batch: lambda outputs, batch: outputs.argmax(-1) == batch[1]; what needs all predictions at "
                "once, as compute_metrics of transformers, is eval_data of your own with evaluate(model)"
            ) from None
        raise ConfigError(f"metrics={{{name!r}: ...}} must be a function of (outputs, batch): {error}") from error
    except ValueError:  # built-in functions have no signature
        return
    _check_names(name, function, [parameter.lower().strip("_") for parameter in signature.parameters])


def _takes_one(signature: inspect.Signature) -> bool:
    try:
        signature.bind(None)
    except TypeError:
        return False
    return True


def _check_names(name: str, function: Callable[..., Any], parameters: list[str]) -> None:
    """Refuse a function that expects a target: of a whole batch it may well make a number, of something else."""
    first, second = (*parameters, "", "")[:2]
    is_turned = first in TARGETS and second not in TARGETS | BATCHES
    if second in TARGETS or is_turned:
        called = getattr(function, "__name__", "function")
        called = called if called.isidentifier() else "function"
        order = "batch[1], outputs" if is_turned else "outputs, batch[1]"
        raise ConfigError(
            f"the metric {name!r} is a function of ({first}, {second}), and is called with (outputs, batch): hand over "
            f"{{{name!r}: lambda outputs, batch: {called}({order})}}"
        )


def _sums(name: str, value: Any, seen: SeenBatch) -> Tensor:
    if isinstance(value, Loss):
        return total_and_count(value.total.detach(), _plain(value.count))
    if isinstance(value, Tensor) and value.dim():
        return total_and_count(value.detach().sum(dtype=accumulation_dtype(value.device)), value.numel())
    try:
        mean = _as_number(value)
    except (TypeError, ValueError, RuntimeError) as error:
        why = ", which is what == gives for a tensor and something else" if isinstance(value, bool) else ""
        raise ConfigError(
            f"the metric {name!r} gave {a_type(value)}{why}; let it return a number, a tensor with one for "
            "each sample, or brim.Loss(total, count)"
        ) from error
    if mean.dim():  # a numpy array, with a value for each sample
        return total_and_count(mean.double().sum(), mean.numel())
    return total_and_count(mean.to(accumulation_dtype(mean.device)) * seen.samples, seen.samples)


def _as_number(value: Any) -> Tensor:
    """A number or array as a tensor. A truth value is none: it is rarely meant, and lists may be (hits, count)."""
    if isinstance(value, bool) or not isinstance(value, Tensor | np.ndarray | np.generic | int | float):
        raise TypeError(f"{type(value).__name__} is no number")
    return torch.as_tensor(value).detach()


def _plain(count: Tensor | float) -> Tensor | float:
    return count.detach() if isinstance(count, Tensor) else count
